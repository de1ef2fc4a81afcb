#include "jinja/renderer.h"

#include "jinja/operators.h"

namespace evenkeel::jinja {
namespace {

/// Puts a value, or the parts of one, under names.
void name_parts(const std::vector<std::string>& names, const Value& value, Scope& scope, Budget& budget) {
  if (names.size() == 1) return scope.set(names[0], value);
  const auto parts = iterated(value, budget);
  EK_CHECK(parts.size() == names.size(), kData, parts.size(), " values for ", names.size(), " names");
  for (size_t i = 0; i < names.size(); ++i) scope.set(names[i], parts[i]);
}

bool holds(std::string_view op, const Value& x, const Value& y, Budget& budget) {
  if (op == "==") return equal(x, y);
  if (op == "!=") return !equal(x, y);
  if (op == "<") return less(x, y);
  if (op == ">") return less(y, x);
  if (op == "<=") return !less(y, x);
  if (op == ">=") return !less(x, y);
  return contains(y, x, budget) == (op == "in");
}

constexpr std::string_view kBuiltIn[] = {"range", "namespace", "raise_exception", "dict"};

}  // namespace

/// One level of recursion, as long as it lives.
class Renderer::Deeper {
 public:
  explicit Deeper(Renderer& renderer) : renderer_(renderer) {
    renderer_.budget_.charge(1);
    EK_CHECK(++renderer_.depth_ <= kDeepest, kData, "nested deeper than ", kDeepest);
  }
  ~Deeper() { --renderer_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  static constexpr int kDeepest = 400;
  Renderer& renderer_;
};

Rendered Renderer::run(const Syntax& syntax, const std::vector<std::pair<std::string, Value>>& variables) {
  for (const auto name : kBuiltIn) root_.set(name, Value(Value::Held(Function{.name = name})));
  for (const auto& [name, value] : variables) root_.set(name, value);
  body(syntax.body, root_);
  return std::move(rendered_);
}

void Renderer::write(std::string_view text) {
  budget_.charge_bytes(text.size());
  out_->append(text);
}

Renderer::Flow Renderer::body(const Body& nodes, Scope& scope) {
  for (const auto* node : nodes)
    if (const auto flow = statement(*node, scope); flow != Flow::kOn) return flow;
  return Flow::kOn;
}

Renderer::Flow Renderer::statement(const Node& node, Scope& scope) {
  const Deeper deeper(*this);
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kText:
      write(node.text);
      break;
    case NodeKind::kPrint:
      write(printed(value(*node.children[0], scope)));
      break;
    case NodeKind::kIf:
      return choose(node, scope);
    case NodeKind::kFor:
      return loop(node, scope);
    case NodeKind::kSet:
      assign(node, scope);
      break;
    case NodeKind::kSetBlock:
      scope.set(node.names[0], budget_.text(captured(node.bodies[0], scope)));
      break;
    case NodeKind::kMacro:
      EK_CHECK(&scope == &root_, kData, "a macro inside of a loop or a macro is not part of the subset");
      scope.set(node.text, Value(Value::Held(Function{.name = node.text, .macro = &node})));
      break;
    case NodeKind::kGeneration:
      generation(node, scope);
      break;
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      fail(kInternal, "a node that is no statement");
  }
  return Flow::kOn;
}

Renderer::Flow Renderer::choose(const Node& node, Scope& scope) {
  for (size_t i = 0; i < node.children.size(); ++i)
    if (value(*node.children[i], scope).truth()) return body(node.bodies[i], scope);
  return node.bodies.size() > node.children.size() ? body(node.bodies.back(), scope) : Flow::kOn;
}

/// Those that pass the loop's `if`, which sees the targets and no `loop`.
std::vector<Value> Renderer::loop_items(const Node& node, const Scope& scope) {
  auto items = iterated(value(*node.children[0], scope), budget_);
  if (!node.children[1]) return items;
  std::vector<Value> kept;
  for (const auto& item : items) {
    Scope inner(&scope);
    name_parts(node.names, item, inner, budget_);
    if (value(*node.children[1], inner).truth()) kept.push_back(item);
  }
  return kept;
}

Renderer::Flow Renderer::loop(const Node& node, Scope& scope) {
  auto state = std::make_shared<Loop>();
  state->items = loop_items(node, scope);
  for (const auto& item : state->items) state->depth = std::max(state->depth, item.depth() + 1);
  EK_CHECK(state->depth < Value::kDeepest, kData, "values are nested deeper than ", Value::kDeepest);
  bool ended = false;
  for (; state->index < state->items.size() && !ended; ++state->index) {
    Scope inner(&scope);
    inner.set("loop", Value(Value::Held(state)));
    name_parts(node.names, state->items[state->index], inner, budget_);
    ended = body(node.bodies[0], inner) == Flow::kBreak;
  }
  if (!state->items.empty() || node.bodies.size() < 2) return Flow::kOn;
  Scope inner(&scope);
  return body(node.bodies[1], inner);
}

void Renderer::assign(const Node& node, Scope& scope) {
  auto given = value(*node.children[0], scope);
  if (node.text.empty()) return name_parts(node.names, given, scope, budget_);
  const auto* found = scope.find(node.text);
  EK_CHECK(found && found->is<Namespace*>(), kData, node.text, " is no namespace, so ", node.names[0],
           " cannot be set in it");
  EK_CHECK(given.depth() + 1 < Value::kDeepest, kData, "values are nested deeper than ", Value::kDeepest);
  auto& entries = (*found->as<Namespace*>())->variables.entries;
  budget_.charge(entries.size());
  for (auto& [name, held] : entries)
    if (name == node.names[0]) {
      held = std::move(given);
      return;
    }
  entries.emplace_back(node.names[0], std::move(given));
}

std::string Renderer::captured(const Body& nodes, Scope& scope) {
  std::string text;
  auto* outer = std::exchange(out_, &text);
  body(nodes, scope);
  out_ = outer;
  return text;
}

/// Names that are set inside stay inside, as in transformers.
void Renderer::generation(const Node& node, const Scope& scope) {
  EK_CHECK(out_ == &rendered_.text, kData, "{% generation %} inside of a macro or a block is not part of the subset");
  const size_t begin = out_->size();
  Scope inner(&scope);
  body(node.bodies[0], inner);
  rendered_.generated.push_back({begin, out_->size()});
}

Value Renderer::optional_value(const Node* node, const Scope& scope) {
  return node ? value(*node, scope) : Value::none();
}

std::vector<Value> Renderer::values(const Node& node, const Scope& scope) {
  std::vector<Value> out;
  for (const auto* child : node.children) out.push_back(value(*child, scope));
  return out;
}

Value Renderer::dict(const Node& node, const Scope& scope) {
  std::vector<std::pair<std::string, Value>> entries;
  for (size_t i = 0; i < node.children.size(); i += 2) {
    const auto key = value(*node.children[i], scope);
    EK_CHECK(key.is_string(), kData, "a key of a dict is ", key.kind(), ", expected a string");
    auto held = value(*node.children[i + 1], scope);
    budget_.charge(entries.size());
    const auto same =
        std::find_if(entries.begin(), entries.end(), [&](const auto& one) { return one.first == key.text(); });
    if (same != entries.end())
      same->second = std::move(held);
    else
      entries.emplace_back(key.text(), std::move(held));
  }
  return Value::dict(std::move(entries));
}

Value Renderer::comparison(const Node& node, const Scope& scope) {
  auto left = value(*node.children[0], scope);
  for (size_t i = 0; i < node.names.size(); ++i) {
    auto right = value(*node.children[i + 1], scope);
    line_ = node.line;
    if (!holds(node.names[i], left, right, budget_)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Renderer::value(const Node& node, const Scope& scope) {
  const Deeper deeper(*this);
  const auto child = [&](size_t i) { return value(*node.children[i], scope); };
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kConstant:
      return node.constant;
    case NodeKind::kName: {
      const auto* found = scope.find(node.text);
      return found ? *found : Value::undefined(node.text);
    }
    case NodeKind::kList:
      return Value::list(values(node, scope));
    case NodeKind::kTuple:
      return Value::list(values(node, scope), Shape::kTuple);
    case NodeKind::kDict:
      return dict(node, scope);
    case NodeKind::kAttribute:
      return attribute(child(0), node.text);
    case NodeKind::kItem: {
      const auto subject = child(0);
      return item(subject, child(1), budget_);
    }
    case NodeKind::kSlice: {
      const auto subject = child(0);
      const auto begin = optional_value(node.children[1], scope), end = optional_value(node.children[2], scope);
      return slice(subject, begin, end, optional_value(node.children[3], scope), budget_);
    }
    case NodeKind::kCall:
      return call(node, scope);
    case NodeKind::kFilter: {
      const auto subject = child(0);
      auto given = arguments(node, scope);
      return filtered(node.text, subject, given, budget_);
    }
    case NodeKind::kTest: {
      const auto subject = child(0);
      auto given = arguments(node, scope);
      return Value::boolean(tested(node.text, subject, given, budget_));
    }
    case NodeKind::kNot:
      return Value::boolean(!child(0).truth());
    case NodeKind::kNegative:
      return negative(child(0));
    case NodeKind::kPositive:
      return negative(negative(child(0)));
    case NodeKind::kAnd: {
      auto left = child(0);
      return left.truth() ? child(1) : left;
    }
    case NodeKind::kOr: {
      auto left = child(0);
      return left.truth() ? left : child(1);
    }
    case NodeKind::kBinary: {
      const auto left = child(0);
      return calculated(node.text, left, child(1), budget_);
    }
    case NodeKind::kCompare:
      return comparison(node, scope);
    case NodeKind::kConditional:
      if (child(0).truth()) return child(1);
      return node.children[2] ? child(2) : Value::undefined("the other side of an if without else");
    default:
      fail(kInternal, "a node that is no expression");
  }
}

/// What follows the subject.
Arguments Renderer::arguments(const Node& node, const Scope& scope) {
  Arguments out;
  for (size_t i = 1; i < node.children.size(); ++i) out.placed.push_back(value(*node.children[i], scope));
  for (const auto& [name, argument] : node.named) out.named.emplace_back(name, value(*argument, scope));
  return out;
}

Value Renderer::call(const Node& node, const Scope& scope) {
  const Node& callee = *node.children[0];
  if (callee.kind == NodeKind::kAttribute) {
    const auto subject = value(*callee.children[0], scope);
    if (subject.is_string() || subject.is_dict()) {
      auto given = arguments(node, scope);
      line_ = node.line;
      return called_method(subject, callee.text, given, budget_);
    }
  }
  const auto called = value(callee, scope);
  const auto* function = called.as<Function>();
  const std::string_view name = callee.text.empty() ? called.kind() : std::string_view(callee.text);
  EK_CHECK(function, kData, "the function ", name, " is not part of the subset of Jinja that is read");
  auto given = arguments(node, scope);
  line_ = node.line;
  return function->macro ? called_macro(*function->macro, std::move(given)) : called_builtin(function->name, given);
}

/// It sees its parameters and the template's own names.
Value Renderer::called_macro(const Node& macro, Arguments given) {
  Scope scope(&root_);
  for (size_t i = 0; i < macro.names.size(); ++i) {
    const auto argument = given.take(macro.names[i]);
    const auto* otherwise = macro.children[i];
    scope.set(macro.names[i], argument    ? *argument
                              : otherwise ? value(*otherwise, scope)
                                          : Value::undefined(macro.names[i]));
  }
  given.finish(concat("the macro ", macro.text));
  return budget_.text(captured(macro.bodies[0], scope));
}

Value Renderer::range(Arguments& given) {
  const int64_t first = given.integer("start", "range").value_or(0);
  const auto second = given.integer("stop", "range");
  const int64_t step = given.integer("step", "range").value_or(1);
  EK_CHECK(step != 0, kData, "range with step 0");
  const int64_t begin = second ? first : 0, end = second.value_or(first);
  std::vector<Value> out;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    budget_.charge(1);
    out.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::list(std::move(out), Shape::kRange);
}

Value Renderer::called_builtin(std::string_view name, Arguments& given) {
  Value out;
  if (name == "raise_exception") fail(kData, "the chat template refuses: ", given.text("message", name));
  if (name == "range") {
    out = range(given);
  } else {
    std::vector<std::pair<std::string, Value>> entries;
    if (const auto first = given.take("mapping")) {
      EK_CHECK(first->is_dict(), kData, name, " of ", first->kind(), ", expected a dict");
      entries = first->entries().entries;
    }
    for (auto& one : given.named) entries.push_back(std::move(one));
    given.named.clear();
    out = Value::dict(std::move(entries));
    if (name == "namespace") out = Value(Value::Held(&namespaces_.emplace_back(Namespace{out.entries()})));
  }
  given.finish(name);
  return out;
}

}  // namespace evenkeel::jinja
