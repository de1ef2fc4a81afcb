// Evaluates expressions.
#include <algorithm>

#include "jinja/operators.h"
#include "jinja/renderer.h"

namespace evenkeel::jinja {
namespace {

bool holds(std::string_view op, const Value& x, const Value& y, Budget& budget) {
  if (op == "==") return equal(x, y, budget);
  if (op == "!=") return !equal(x, y, budget);
  if (op == "<") return less(x, y, budget);
  if (op == ">") return less(y, x, budget);
  if (op == "<=") return !less(y, x, budget);
  if (op == ">=") return !less(x, y, budget);
  return contains(y, x, budget) == (op == "in");
}

}  // namespace

Value Renderer::optional_value(const Node* node, const Scope& scope) {
  return node ? value(*node, scope) : Value::none();
}

std::vector<Value> Renderer::values(const Node& node, const Scope& scope) {
  std::vector<Value> out;
  for (const auto* child : node.children) out.push_back(value(*child, scope));
  return out;
}

Value Renderer::dict(const Node& node, const Scope& scope) {
  Dict made;
  for (size_t i = 0; i < node.children.size(); i += 2) {
    auto key = value(*node.children[i], scope);
    auto held = value(*node.children[i + 1], scope);
    made.put(std::move(key), std::move(held), budget_);
  }
  return Value::dict_of(std::move(made.entries));
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

Value Renderer::name(const Node& node, const Scope& scope) const {
  const auto* found = scope.find(node.text);
  return found ? *found : Value::undefined(node.text);
}

Value Renderer::subscript(const Node& node, const Scope& scope) {
  const auto subject = value(*node.children[0], scope);
  return item(subject, value(*node.children[1], scope), budget_);
}

Value Renderer::sliced(const Node& node, const Scope& scope) {
  const auto subject = value(*node.children[0], scope);
  const auto begin = optional_value(node.children[1], scope), end = optional_value(node.children[2], scope);
  return slice(subject, begin, end, optional_value(node.children[3], scope), budget_);
}

Value Renderer::filter(const Node& node, const Scope& scope) {
  const auto subject = value(*node.children[0], scope);
  auto given = arguments(node, scope);
  return filtered(node.text, subject, given, budget_);
}

Value Renderer::test(const Node& node, const Scope& scope) {
  const auto subject = value(*node.children[0], scope);
  auto given = arguments(node, scope);
  return Value::boolean(tested(node.text, subject, given, budget_));
}

/// Evaluates x and y, x or y. The second operand is evaluated only if the first does not decide.
Value Renderer::either(const Node& node, const Scope& scope) {
  auto left = value(*node.children[0], scope);
  return left.truth() == (node.kind == NodeKind::kOr) ? left : value(*node.children[1], scope);
}

Value Renderer::conditional(const Node& node, const Scope& scope) {
  if (value(*node.children[0], scope).truth()) return value(*node.children[1], scope);
  if (node.children[2]) return value(*node.children[2], scope);
  return Value::undefined("the other side of an if without else");
}

Value Renderer::binary(const Node& node, const Scope& scope) {
  const auto left = value(*node.children[0], scope);
  return calculated(node.text, left, value(*node.children[1], scope), budget_);
}

Value Renderer::value(const Node& node, const Scope& scope) {
  const Deeper deeper(*this);
  const auto child = [&] { return value(*node.children[0], scope); };
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kConstant:
      return node.constant;
    case NodeKind::kName:
      return name(node, scope);
    case NodeKind::kList:
      return Value::list(values(node, scope));
    case NodeKind::kTuple:
      return Value::list(values(node, scope), SequenceType::kTuple);
    case NodeKind::kDict:
      return dict(node, scope);
    case NodeKind::kAttribute:
      return attribute(child(), node.text);
    case NodeKind::kItem:
      return subscript(node, scope);
    case NodeKind::kSlice:
      return sliced(node, scope);
    case NodeKind::kCall:
      return call(node, scope);
    case NodeKind::kFilter:
      return filter(node, scope);
    case NodeKind::kTest:
      return test(node, scope);
    default:
      return operation(node, scope);
  }
}

/// Evaluates operators.
Value Renderer::operation(const Node& node, const Scope& scope) {
  const auto child = [&] { return value(*node.children[0], scope); };
  switch (node.kind) {
    case NodeKind::kNot:
      return Value::boolean(!child().truth());
    case NodeKind::kNegative:
      return negative(child());
    case NodeKind::kPositive:
      return negative(negative(child()));
    case NodeKind::kAnd:
    case NodeKind::kOr:
      return either(node, scope);
    case NodeKind::kBinary:
      return binary(node, scope);
    case NodeKind::kCompare:
      return comparison(node, scope);
    case NodeKind::kConditional:
      return conditional(node, scope);
    default:
      fail(kInternal, "a node that is no expression");
  }
}

/// Evaluates the arguments of a call, filter or test, which follow its subject.
Arguments Renderer::arguments(const Node& node, const Scope& scope) {
  Arguments out;
  for (size_t i = 1; i < node.children.size(); ++i) out.placed.push_back(value(*node.children[i], scope));
  if (node.spread)
    for (auto& one : iterated(value(*node.spread, scope), budget_)) out.placed.push_back(std::move(one));
  for (const auto& [name, argument] : node.named) out.named.emplace_back(name, value(*argument, scope));
  if (node.named_spread) add_named(value(*node.named_spread, scope), out);
  return out;
}

/// Adds the arguments of **more.
void Renderer::add_named(const Value& more, Arguments& out) {
  EK_CHECK(more.is_dict(), kData, "** of ", more.kind(), ", expected a dict");
  budget_.charge(more.entries().entries.size());
  for (const auto& [name, argument] : more.entries().entries) {
    EK_CHECK(name.is_string(), kData, "** of a dict with ", name.kind(), " as key");
    const auto same = [&, &key = name](const auto& one) { return one.first == key.text(); };
    budget_.charge(out.named.size() / 8);
    EK_CHECK(std::none_of(out.named.begin(), out.named.end(), same), kData, "the argument ", name.text(),
             " stands twice");
    out.named.emplace_back(name.text(), argument);
  }
}

}  // namespace evenkeel::jinja
