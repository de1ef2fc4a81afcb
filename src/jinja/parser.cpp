#include "jinja/parser.h"

#include <algorithm>
#include <array>

#include "base/plain/error.h"
#include "jinja/expression_parser.h"
#include "jinja/known_names.h"

namespace evenkeel::jinja {
namespace {

using Body = std::vector<const Node*>;

/// Parses the statements of a template. jinja/syntax.h says which members of a Node its kind uses.
class StatementParser {
 public:
  explicit StatementParser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_, syntax_) {}

  Syntax run() {
    syntax_.body = body({});
    if (tokens_.peek().type != TokenType::kEnd) tokens_.refuse("{% ", tokens_.peek().text, " %} ends nothing");
    return std::move(syntax_);
  }

 private:
  Node& make(NodeKind kind) { return syntax_.nodes.emplace_back(Node{.kind = kind, .line = tokens_.peek().line}); }

  /// Parses statements up to a tag named in `ends`, whose name is the next token. Without `ends`: to the end of the
  /// template.
  Body body(std::initializer_list<std::string_view> ends) {
    Body out;
    const TokenStream::Deeper deeper(tokens_);
    while (true) {
      const auto& token = tokens_.peek();
      if (token.type == TokenType::kEnd) {
        if (ends.size() > 0) tokens_.refuse("{% ", *(ends.end() - 1), " %} is missing");
        return out;
      }
      tokens_.next();
      if (token.type == TokenType::kText) {
        auto& node = make(NodeKind::kText);
        node.line = token.line;
        node.text = token.text;
        out.push_back(&node);
      } else if (token.type == TokenType::kPrintBegin) {
        out.push_back(print());
      } else {
        if (std::find(ends.begin(), ends.end(), tokens_.peek().text) != ends.end()) return out;
        out.push_back(statement());
      }
    }
  }

  const Node* print() {
    auto& node = make(NodeKind::kPrint);
    node.children = {expressions_.tuple()};
    tokens_.expect(TokenType::kPrintEnd, "}}");
    return &node;
  }

  void end_tag() { tokens_.expect(TokenType::kBlockEnd, "%}"); }

  /// Parses the rest of {% word %}, at which body() stopped.
  void close(std::string_view word) {
    tokens_.expect_name(word);
    end_tag();
  }

  const Node* statement() {
    const auto word = tokens_.name("a tag's name");
    if (word == "if") return if_statement();
    if (word == "for") return for_statement();
    if (word == "set") return set_statement();
    if (word == "macro") return macro();
    if (word == "call") return call_block();
    if (word == "generation") return generation();
    if (word == "break" || word == "continue") return jump(word == "break" ? NodeKind::kBreak : NodeKind::kContinue);
    refuse_tag(word);
  }

  [[noreturn]] void refuse_tag(const std::string& word) {
    constexpr std::array<std::string_view, 11> kOthers = {"block", "extends", "include",    "import", "from", "filter",
                                                          "with",  "do",      "autoescape", "trans",  "print"};
    if (std::find(kOthers.begin(), kOthers.end(), word) != kOthers.end())
      tokens_.refuse("{% ", word, " %} is not part of the subset of Jinja that is read");
    tokens_.refuse("{% ", word, " %} is not expected");
  }

  const Node* if_statement() {
    auto& node = make(NodeKind::kIf);
    while (true) {
      node.children.push_back(expressions_.unconditional_tuple());
      end_tag();
      node.bodies.push_back(body({"elif", "else", "endif"}));
      if (tokens_.skip_name("elif")) continue;
      if (tokens_.skip_name("else")) {
        end_tag();
        node.bodies.push_back(body({"endif"}));
      }
      close("endif");
      return &node;
    }
  }

  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool open = tokens_.skip("(");
    do {
      names.push_back(tokens_.name("a name"));
      if (extra_named(names.back())) tokens_.refuse("to set ", names.back(), " is not part of the subset");
    } while (tokens_.skip(","));
    if (open) tokens_.expect(")");
    return names;
  }

  const Node* for_statement() {
    auto& node = make(NodeKind::kFor);
    node.names = targets();
    tokens_.expect_name("in");
    node.children.push_back(expressions_.unconditional_tuple());
    node.children.push_back(tokens_.skip_name("if") ? expressions_.expression() : nullptr);
    if (tokens_.skip_name("recursive")) node.text = "recursive";
    end_tag();
    const bool outer = std::exchange(in_loop_, true);
    node.bodies.push_back(body({"else", "endfor"}));
    in_loop_ = outer;
    if (tokens_.skip_name("else")) {
      end_tag();
      node.bodies.push_back(body({"endfor"}));
    }
    close("endfor");
    return &node;
  }

  const Node* set_statement() {
    auto& node = make(NodeKind::kSet);
    node.names = targets();
    if (tokens_.skip(".")) {
      node.text = std::exchange(node.names[0], tokens_.name("a name"));
    } else if (tokens_.peek().type == TokenType::kBlockEnd && node.names.size() == 1) {
      end_tag();
      node.kind = NodeKind::kSetBlock;
      node.bodies.push_back(body({"endset"}));
      close("endset");
      return &node;
    }
    if (tokens_.peek().text == "|") tokens_.refuse("a filter on {% set %} is not part of the subset");
    tokens_.expect("=");
    node.children = {expressions_.tuple()};
    end_tag();
    return &node;
  }

  void parameters(Node& node) {
    tokens_.expect("(");
    while (!tokens_.skip(")")) {
      if (!node.names.empty()) tokens_.expect(",");
      node.names.push_back(tokens_.name("a parameter"));
      if (extra_named(node.names.back()))
        tokens_.refuse("the parameter ", node.names.back(), " is not part of the subset");
      node.children.push_back(tokens_.skip("=") ? expressions_.expression() : nullptr);
    }
  }

  const Node* macro() {
    auto& node = make(NodeKind::kMacro);
    node.text = tokens_.name("a macro's name");
    parameters(node);
    end_tag();
    macro_body(node, "endmacro");
    return &node;
  }

  void macro_body(Node& node, std::string_view end) {
    const bool outer = std::exchange(in_loop_, false);
    const uint8_t before = expressions_.exchange_extras(0);
    node.bodies.push_back(body({end}));
    node.extras = expressions_.exchange_extras(before);
    expressions_.exchange_extras(static_cast<uint8_t>(before | node.extras));
    in_loop_ = outer;
    close(end);
  }

  /// Parses {% call(parameters) f(arguments) %}. Its block becomes the macro that f calls `caller`.
  const Node* call_block() {
    auto& node = make(NodeKind::kCallBlock);
    auto& caller = make(NodeKind::kMacro);
    caller.text = "caller";
    if (tokens_.is("(")) parameters(caller);
    const auto* called = expressions_.expression();
    if (called->kind != NodeKind::kCall) tokens_.refuse("{% call %} expects a call");
    end_tag();
    macro_body(caller, "endcall");
    node.children = {called, &caller};
    return &node;
  }

  const Node* generation() {
    auto& node = make(NodeKind::kGeneration);
    end_tag();
    syntax_.marks_generation = true;
    const bool outer = std::exchange(in_loop_, false);
    node.bodies.push_back(body({"endgeneration"}));
    in_loop_ = outer;
    close("endgeneration");
    return &node;
  }

  const Node* jump(NodeKind kind) {
    auto& node = make(kind);
    if (!in_loop_) tokens_.refuse("break and continue belong into a loop");
    end_tag();
    return &node;
  }

  Syntax syntax_;
  TokenStream tokens_;
  ExpressionParser expressions_;
  bool in_loop_ = false;
};

}  // namespace

uint8_t extra_named(std::string_view name) {
  return name == "caller" ? kCaller : name == "varargs" ? kVarargs : name == "kwargs" ? kKwargs : 0;
}

Syntax parse(std::string_view source) {
  auto syntax = StatementParser(source).run();
  check_names(syntax);
  return syntax;
}

}  // namespace evenkeel::jinja
