/// \file  Shortening a row's context until its prompt fits, so that neither question nor answer is ever cut.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace evenkeel {

/// Bytes [begin, end) of a context that have to stay. Empty: none, and the context loses its tail.
struct KeptSpan {
  size_t begin = 0, end = 0;
};

/// Whole words of `context` around `kept`, to both sides alike, with which `tokens_with(window)` is at most `limit`.
/// Words are added by their own tokens; where tokens join otherwise in the whole text, words at the edge go again.
/// \param tokens_with  tokens of the whole text with this much of the context.
/// \return nothing when not even the kept words (without any: the first one) fit.
/// Cost: one pass over the context, and two or three calls of `tokens_with`.
std::optional<std::string> context_window(std::string_view context, KeptSpan kept, int64_t limit,
                                          const Tokenizer& tokenizer,
                                          const std::function<int64_t(std::string_view)>& tokens_with);

}  // namespace evenkeel
