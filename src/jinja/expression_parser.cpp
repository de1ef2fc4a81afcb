#include "jinja/expression_parser.h"

#include <algorithm>
#include <charconv>

namespace evenkeel::jinja {

Node& ExpressionParser::make(NodeKind kind) {
  return syntax_.nodes.emplace_back(Node{.kind = kind, .line = tokens_.peek().line});
}

const Node* ExpressionParser::expression() {
  const TokenStream::Deeper deeper(tokens_);
  const Node* value = disjunction();
  while (tokens_.skip_name("if")) {
    auto& node = make(NodeKind::kConditional);
    const Node* condition = disjunction();
    node.children = {condition, value, tokens_.skip_name("else") ? expression() : nullptr};
    value = &node;
  }
  return value;
}

const Node* ExpressionParser::many(Rule rule) {
  const Node* first = (this->*rule)();
  if (!tokens_.is(",")) return first;
  auto& node = make(NodeKind::kTuple);
  node.children = {first};
  const auto ends = [&] {
    const auto type = tokens_.peek().type;
    return type == TokenType::kPrintEnd || type == TokenType::kBlockEnd || tokens_.is(")");
  };
  while (tokens_.skip(",") && !ends()) node.children.push_back((this->*rule)());
  return &node;
}

const Node* ExpressionParser::tuple() { return many(&ExpressionParser::expression); }
const Node* ExpressionParser::unconditional_tuple() { return many(&ExpressionParser::disjunction); }

const Node* ExpressionParser::disjunction() {
  const Node* left = conjunction();
  while (tokens_.skip_name("or")) {
    auto& node = make(NodeKind::kOr);
    node.children = {left, conjunction()};
    left = &node;
  }
  return left;
}

const Node* ExpressionParser::conjunction() {
  const Node* left = negation();
  while (tokens_.skip_name("and")) {
    auto& node = make(NodeKind::kAnd);
    node.children = {left, negation()};
    left = &node;
  }
  return left;
}

const Node* ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const TokenStream::Deeper deeper(tokens_);
  auto& node = make(NodeKind::kNot);
  tokens_.next();
  node.children = {negation()};
  return &node;
}

/// Reads a comparison operator. Returns "" if there is none.
std::string ExpressionParser::comparison_operator() {
  for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
    if (tokens_.skip(op)) return op;
  if (tokens_.skip_name("in")) return "in";
  if (!tokens_.is_name("not") || !tokens_.is_name("in", 1)) return "";
  tokens_.next();
  tokens_.next();
  return "not in";
}

const Node* ExpressionParser::comparison() {
  const Node* first = sum();
  Node* node = nullptr;
  for (std::string op; !(op = comparison_operator()).empty();) {
    if (!node) {
      node = &make(NodeKind::kCompare);
      node->children = {first};
    }
    node->names.push_back(std::move(op));
    node->children.push_back(sum());
  }
  return node ? node : first;
}

const Node* ExpressionParser::binary(std::initializer_list<std::string_view> operators, Rule operand) {
  const Node* left = (this->*operand)();
  while (std::any_of(operators.begin(), operators.end(), [&](auto op) { return tokens_.is(op); })) {
    auto& node = make(NodeKind::kBinary);
    node.text = tokens_.next().text;
    node.children = {left, (this->*operand)()};
    left = &node;
  }
  return left;
}

const Node* ExpressionParser::sum() { return binary({"+", "-"}, &ExpressionParser::concatenation); }
const Node* ExpressionParser::concatenation() { return binary({"~"}, &ExpressionParser::product); }
const Node* ExpressionParser::product() { return binary({"*", "/", "//", "%"}, &ExpressionParser::power); }
const Node* ExpressionParser::power() { return binary({"**"}, &ExpressionParser::unary); }
const Node* ExpressionParser::unary() { return signed_operand(true); }

/// Parses an operand with signs. A sign binds weaker than a subscript and stronger than a filter.
const Node* ExpressionParser::signed_operand(bool with_filters) {
  const TokenStream::Deeper deeper(tokens_);
  const Node* operand = nullptr;
  if (tokens_.is("-") || tokens_.is("+")) {
    auto& node = make(tokens_.is("-") ? NodeKind::kNegative : NodeKind::kPositive);
    tokens_.next();
    node.children = {signed_operand(false)};
    operand = &node;
  } else {
    operand = primary();
  }
  operand = postfix(operand);
  return with_filters ? filters(operand) : operand;
}

const Node* ExpressionParser::constant(Value value) {
  auto& node = make(NodeKind::kConstant);
  node.constant = std::move(value);
  return &node;
}

const Node* ExpressionParser::word() {
  auto& node = make(NodeKind::kName);
  node.text = tokens_.next().text;
  extras_ |= extra_named(node.text);
  if (node.text == "true" || node.text == "True") return constant(Value::boolean(true));
  if (node.text == "false" || node.text == "False") return constant(Value::boolean(false));
  if (node.text == "none" || node.text == "None") return constant(Value::none());
  return &node;
}

const Node* ExpressionParser::number() {
  const auto& token = tokens_.next();
  const char *begin = token.text.data(), *end = begin + token.text.size();
  int64_t whole = 0;
  double real = 0;
  const bool integer = token.type == TokenType::kInteger;
  const auto read = integer ? std::from_chars(begin, end, whole) : std::from_chars(begin, end, real);
  if (read.ec != std::errc() || read.ptr != end) tokens_.refuse("the number ", token.text, " is too large");
  return constant(integer ? Value::integer(whole) : Value(Value::Held(real)));
}

/// Parses adjacent string literals, which are concatenated.
const Node* ExpressionParser::strings() {
  std::string text;
  while (tokens_.peek().type == TokenType::kString) text += tokens_.next().text;
  return constant(Value::string(std::move(text)));
}

const Node* ExpressionParser::brackets() {
  auto& node = make(NodeKind::kList);
  while (!tokens_.skip("]")) {
    if (!node.children.empty()) tokens_.expect(",");
    if (tokens_.skip("]")) break;
    node.children.push_back(expression());
  }
  return &node;
}

const Node* ExpressionParser::braces() {
  auto& node = make(NodeKind::kDict);
  while (!tokens_.skip("}")) {
    if (!node.children.empty()) tokens_.expect(",");
    if (tokens_.skip("}")) break;
    node.children.push_back(expression());
    tokens_.expect(":");
    node.children.push_back(expression());
  }
  return &node;
}

const Node* ExpressionParser::primary() {
  const auto type = tokens_.peek().type;
  if (type == TokenType::kName) return word();
  if (type == TokenType::kString) return strings();
  if (type == TokenType::kInteger || type == TokenType::kFloat) return number();
  if (tokens_.skip("[")) return brackets();
  if (tokens_.skip("{")) return braces();
  if (!tokens_.skip("(")) tokens_.refuse("an expression is missing");
  if (tokens_.skip(")")) return &make(NodeKind::kTuple);
  const Node* inside = tuple();
  tokens_.expect(")");
  return inside;
}

const Node* ExpressionParser::postfix(const Node* subject) {
  while (true) {
    if (tokens_.is("."))
      subject = attribute(subject);
    else if (tokens_.is("["))
      subject = subscript(subject);
    else if (tokens_.is("("))
      subject = call(subject);
    else
      return subject;
  }
}

const Node* ExpressionParser::filters(const Node* subject) {
  while (true) {
    if (tokens_.is("|"))
      subject = filter(subject);
    else if (tokens_.is_name("is"))
      subject = test(subject);
    else if (tokens_.is("("))
      subject = call(subject);
    else
      return subject;
  }
}

const Node* ExpressionParser::attribute(const Node* subject) {
  tokens_.next();
  if (tokens_.peek().type == TokenType::kInteger) {
    auto& node = make(NodeKind::kItem);
    node.children = {subject, number()};
    return &node;
  }
  auto& node = make(NodeKind::kAttribute);
  node.text = tokens_.name("an attribute");
  node.children = {subject};
  return &node;
}

const Node* ExpressionParser::subscript(const Node* subject) {
  auto& node = make(NodeKind::kItem);
  tokens_.next();
  node.children = {subject};
  const auto part = [&] { return tokens_.is(":") || tokens_.is("]") ? nullptr : expression(); };
  node.children.push_back(part());
  if (tokens_.is(":")) node.kind = NodeKind::kSlice;
  while (node.kind == NodeKind::kSlice && node.children.size() < 4)
    node.children.push_back(tokens_.skip(":") ? part() : nullptr);
  if (node.kind == NodeKind::kItem && !node.children[1]) tokens_.refuse("a subscript is missing");
  if (tokens_.is(",")) tokens_.refuse("a subscript of several parts is not part of the subset");
  tokens_.expect("]");
  return &node;
}

void ExpressionParser::arguments(Node& node) {
  tokens_.expect("(");
  for (bool first = true; !tokens_.skip(")"); first = false) {
    if (!first) tokens_.expect(",");
    if (tokens_.skip(")")) return;
    argument(node);
  }
}

/// Parses one argument. The order is as in Jinja: positional, *more, named, **more; *more may also follow named ones.
void ExpressionParser::argument(Node& node) {
  const bool by_name = tokens_.peek().type == TokenType::kName && tokens_.peek(1).type == TokenType::kOperator &&
                       tokens_.peek(1).text == "=";
  const bool spreads = tokens_.is("*"), spreads_names = tokens_.is("**");
  const bool late = node.named_spread || (!by_name && !spreads_names && node.spread) ||
                    (!by_name && !spreads && !spreads_names && !node.named.empty());
  if (late) tokens_.refuse("an argument stands behind one that has to follow it");
  if (spreads || spreads_names) {
    tokens_.next();
    (spreads ? node.spread : node.named_spread) = expression();
  } else if (by_name) {
    auto name = tokens_.next().text;
    tokens_.next();
    node.named.emplace_back(std::move(name), expression());
  } else {
    node.children.push_back(expression());
  }
}

const Node* ExpressionParser::call(const Node* subject) {
  auto& node = make(NodeKind::kCall);
  node.children = {subject};
  arguments(node);
  return &node;
}

const Node* ExpressionParser::filter(const Node* subject) {
  auto& node = make(NodeKind::kFilter);
  tokens_.next();
  node.text = tokens_.name("a filter");
  node.children = {subject};
  if (tokens_.is("(")) arguments(node);
  return &node;
}

/// Parses a test, whose argument may be without parentheses: `x is not divisibleby 3`.
const Node* ExpressionParser::test(const Node* subject) {
  auto& node = make(NodeKind::kTest);
  tokens_.next();
  const bool negated = tokens_.skip_name("not");
  node.text = tokens_.name("a test");
  node.children = {subject};
  const auto bare_argument = [&] {
    const auto& token = tokens_.peek();
    if (token.type == TokenType::kName)
      return token.text != "else" && token.text != "or" && token.text != "and" && token.text != "is" &&
             token.text != "if" && token.text != "not" && token.text != "in";
    return token.type == TokenType::kString || token.type == TokenType::kInteger || token.type == TokenType::kFloat ||
           tokens_.is("[") || tokens_.is("{");
  };
  if (tokens_.is("("))
    arguments(node);
  else if (bare_argument())
    node.children.push_back(postfix(primary()));
  if (!negated) return &node;
  auto& negation = make(NodeKind::kNot);
  negation.children = {&node};
  return &negation;
}

}  // namespace evenkeel::jinja
