/// \file  A Jinja template cut into tokens, with the white space that tags take along: trim_blocks and lstrip_blocks
/// are on, as transformers sets them, and the last newline of a template goes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::jinja {

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

struct Token {
  TokenType type;
  std::string text;  ///< of a string: its value; of a number: its digits
  int line;
};

/// \throws kData "line N: ..." for what no token begins with, or what does not end.
std::vector<Token> tokenize(std::string_view source);

}  // namespace evenkeel::jinja
