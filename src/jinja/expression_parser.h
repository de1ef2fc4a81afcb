/// \file  Provides a stream of tokens and parses expressions. jinja/parser.h parses statements.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "jinja/lexer.h"
#include "jinja/syntax.h"

namespace evenkeel::jinja {

/// A stream of tokens with look-ahead.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// Returns the token `ahead` positions after the current one, or the last token.
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  /// Returns the current token and advances. The last token is returned again and again.
  const Token& next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }

  /// Returns true if the current token is the operator `op`.
  bool is(std::string_view op) const { return peek().type == TokenType::kOperator && peek().text == op; }
  /// Returns true if the token is the name `word`.
  bool is_name(std::string_view word, size_t ahead = 0) const {
    return peek(ahead).type == TokenType::kName && peek(ahead).text == word;
  }
  /// Advances and returns true if the current token is the operator `op`; otherwise returns false. skip_name() does the
  /// same for a name.
  bool skip(std::string_view op) { return is(op) && (next(), true); }
  bool skip_name(std::string_view word) { return is_name(word) && (next(), true); }
  /// Advances over an operator. \throws kData, as the functions below, if the current token is another one
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
  /// Advances over a name and returns it. \param what  the expected construct, for the message
  std::string name(std::string_view what) {
    if (peek().type != TokenType::kName) refuse("expected ", what);
    return next().text;
  }

  /// Throws kData "line N: ..." with the line of the current token.
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(kData, "line ", peek().line, ": ", parts...);
  }

  /// Counts one level of nesting during its lifetime, because the parser is recursive. \throws kData beyond kDeepest.
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

/// A recursive-descent parser for expressions, with the precedence of jinja2's parser. Errors throw kData "line N:
/// ...".
class ExpressionParser {
 public:
  /// Borrows both arguments. Nodes are added to `syntax`, which owns them.
  ExpressionParser(TokenStream& tokens, Syntax& syntax) : tokens_(tokens), syntax_(syntax) {}

  const Node* expression();           ///< one expression, with `if` and `else`
  const Node* tuple();                ///< one expression, or a tuple of several with commas
  const Node* unconditional_tuple();  ///< a tuple without `if`, because `if` after a loop's iterable belongs to the
                                      ///< loop

  /// Returns the Extra bits (jinja/syntax.h) of the names parsed since the last call, and starts again with `extras`.
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
  void argument(Node& node);

  TokenStream& tokens_;
  Syntax& syntax_;
  uint8_t extras_ = 0;
};

}  // namespace evenkeel::jinja
