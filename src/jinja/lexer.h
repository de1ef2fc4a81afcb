/// \file  Splits a Jinja template into tokens. White space is removed as with Jinja's options trim_blocks and
/// lstrip_blocks, which transformers sets. The last newline of the template is removed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::jinja {

/// The kinds of tokens. Block is {% %}, print is {{ }}.
enum class TokenType {
  kText,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

/// A token with the line on which it starts, from 1.
struct Token {
  TokenType type;
  std::string text;  ///< of a string: its value; of a number: its digits
  int line;
};

/// Returns the tokens; the last is kEnd. \throws kData "line N: ..." for an invalid character or an unterminated token.
std::vector<Token> tokenize(std::string_view source);

}  // namespace evenkeel::jinja
