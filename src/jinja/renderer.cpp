#include "jinja/renderer.h"

#include "jinja/operators.h"

namespace evenkeel::jinja {
namespace {

/// Assigns a value to one name, or its items to several names.
void name_parts(const std::vector<std::string>& names, const Value& value, Scope& scope, Budget& budget) {
  if (names.size() == 1) return scope.set(names[0], value);
  const auto parts = iterated(value, budget);
  EK_CHECK(parts.size() == names.size(), kData, parts.size(), " values for ", names.size(), " names");
  for (size_t i = 0; i < names.size(); ++i) scope.set(names[i], parts[i]);
}

constexpr std::string_view kBuiltIn[] = {"range", "namespace", "raise_exception", "dict"};

}  // namespace

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
      write(printed(value(*node.children[0], scope), budget_));
      break;
    case NodeKind::kIf:
      return choose(node, scope);
    case NodeKind::kFor:
      return loop(node, scope, value(*node.children[0], scope), 0);
    case NodeKind::kSet:
      assign(node, scope);
      break;
    case NodeKind::kSetBlock:
      set_block(node, scope);
      break;
    case NodeKind::kMacro:
      scope.set(node.text, macro_in(node, scope));
      break;
    case NodeKind::kCallBlock:
      call_block(node, scope);
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

/// Returns the items that satisfy the loop's `if`. The condition sees the targets but not `loop`.
std::vector<Value> Renderer::loop_items(const Node& node, const Scope& scope, const Value& over) {
  auto items = iterated(over, budget_);
  if (!node.children[1]) return items;
  std::vector<Value> selected;
  for (const auto& item : items) {
    Scope inner(&scope);
    name_parts(node.names, item, inner, budget_);
    if (value(*node.children[1], inner).truth()) selected.push_back(item);
  }
  return selected;
}

/// Runs a loop. \param recursion  number of enclosing loops of the same node
Renderer::Flow Renderer::loop(const Node& node, const Scope& scope, const Value& over, int recursion) {
  auto state = std::make_shared<Loop>();
  state->items = loop_items(node, scope, over);
  for (const auto& item : state->items) state->depth = std::max(state->depth, item.depth() + 1);
  EK_CHECK(state->depth < Value::kDeepest, kData, "values are nested deeper than ", Value::kDeepest);
  state->recursion = recursion;
  if (!node.text.empty()) {
    state->node = &node;
    state->scope = &scope;
  }
  const bool any = iterate(node, scope, state);
  state->node = nullptr;
  if (any || node.bodies.size() < 2) return Flow::kOn;
  Scope inner(&scope);
  return body(node.bodies[1], inner);
}

/// Runs the iterations of a loop. Returns true if there are items.
bool Renderer::iterate(const Node& node, const Scope& scope, const std::shared_ptr<Loop>& state) {
  bool ended = false;
  for (; state->index < state->items.size() && !ended; ++state->index) {
    Scope inner(&scope);
    inner.set("loop", Value(Value::Held(state)));
    name_parts(node.names, state->items[state->index], inner, budget_);
    ended = body(node.bodies[0], inner) == Flow::kBreak;
  }
  return !state->items.empty();
}

Value Renderer::macro_in(const Node& node, const Scope& scope) const {
  return Value(Value::Held(Function{.name = node.text, .macro = &node, .scope = scope.link()}));
}

void Renderer::call_block(const Node& node, const Scope& scope) {
  const auto caller = macro_in(*node.children[1], scope);
  write(printed(call_with(*node.children[0], scope, &caller), budget_));
}

void Renderer::set_block(const Node& node, Scope& scope) {
  Scope inner(&scope);
  auto text = captured([&] { body(node.bodies[0], inner); });
  scope.set(node.names[0], budget_.text(std::move(text)));
}

void Renderer::assign(const Node& node, Scope& scope) {
  auto given = value(*node.children[0], scope);
  if (node.text.empty()) return name_parts(node.names, given, scope, budget_);
  const auto* found = scope.find(node.text);
  EK_CHECK(found && found->is<Namespace*>(), kData, node.text, " is no namespace, so ", node.names[0],
           " cannot be set in it");
  EK_CHECK(given.depth() + 1 < Value::kDeepest, kData, "values are nested deeper than ", Value::kDeepest);
  auto& variables = (*found->as<Namespace*>())->variables;
  variables.put(Value::string(node.names[0]), std::move(given), budget_);
}

/// Renders {% generation %} and records its range. Variables that are set inside are local, as in transformers.
void Renderer::generation(const Node& node, const Scope& scope) {
  EK_CHECK(out_ == &rendered_.text, kData, "{% generation %} inside of a macro or a block is not part of the subset");
  const size_t begin = out_->size();
  Scope inner(&scope);
  body(node.bodies[0], inner);
  rendered_.generated.push_back({begin, out_->size()});
}

}  // namespace evenkeel::jinja
