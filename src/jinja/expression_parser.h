/// \file  Tokens in turn, and the expressions made of them: half of the parser.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "jinja/lexer.h"
#include "jinja/syntax.h"

namespace evenkeel::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }

  bool is(std::string_view op) const { return peek().type == TokenType::kOperator && peek().text == op; }
  bool is_name(std::string_view word, size_t ahead = 0) const {
    return peek(ahead).type == TokenType::kName && peek(ahead).text == word;
  }
  bool skip(std::string_view op) { return is(op) && (next(), true); }
  bool skip_name(std::string_view word) { return is_name(word) && (next(), true); }
  void expect(std::string_view op) {
    if (!skip(op)) refuse("expected ", op);
  }
  void expect(TokenType type, std::string_view what) {
    if (peek().type != type) refuse("expected ", what);
    next();
  }
  void expect_name(std::string_view word) {
    if (!skip_name(word)) refuse("expected ", word);
  }
  std::string name(std::string_view what) {
    if (peek().type != TokenType::kName) refuse("expected ", what);
    return next().text;
  }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(kData, "line ", peek().line, ": ", parts...);
  }

  /// One level of nesting, as long as it lives: a parser recurses. \throws kData beyond kDeepest
  class Deeper {
   public:
    explicit Deeper(TokenStream& tokens) : tokens_(tokens) {
      if (++tokens_.depth_ > kDeepest) tokens_.refuse("nested deeper than ", kDeepest);
    }
    ~Deeper() { --tokens_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    TokenStream& tokens_;
  };
  static constexpr int kDeepest = 64;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// By precedence, as jinja2's parser has it.
class ExpressionParser {
 public:
  /// Borrows both.
  ExpressionParser(TokenStream& tokens, Syntax& syntax) : tokens_(tokens), syntax_(syntax) {}

  const Node* expression();           ///< with `if` and `else`
  const Node* tuple();                ///< one expression, or several with commas
  const Node* unconditional_tuple();  ///< the same without `if`, which belongs to a loop

  /// Which of Extra were named since the last time; sets what counts from now on.
  uint8_t exchange_extras(uint8_t extras) { return std::exchange(extras_, extras); }

 private:
  using Rule = const Node* (ExpressionParser::*)();

  Node& make(NodeKind kind);
  const Node* many(Rule rule);
  const Node* binary(std::initializer_list<std::string_view> operators, Rule operand);
  const Node* disjunction();
  const Node* conjunction();
  const Node* negation();
  const Node* comparison();
  std::string comparison_operator();
  const Node* sum();
  const Node* concatenation();
  const Node* product();
  const Node* power();
  const Node* unary();
  const Node* signed_operand(bool with_filters);
  const Node* primary();
  const Node* constant(Value value);
  const Node* word();
  const Node* number();
  const Node* strings();
  const Node* brackets();
  const Node* braces();
  const Node* postfix(const Node* subject);
  const Node* filters(const Node* subject);
  const Node* attribute(const Node* subject);
  const Node* subscript(const Node* subject);
  const Node* call(const Node* subject);
  const Node* filter(const Node* subject);
  const Node* test(const Node* subject);
  void arguments(Node& node);

  TokenStream& tokens_;
  Syntax& syntax_;
  uint8_t extras_ = 0;
};

}  // namespace evenkeel::jinja
