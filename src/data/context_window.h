/// \file  Shortens a row's context until its prompt fits. The question and the answer are never shortened.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace evenkeel::data {

/// The bytes [begin, end) of a context that must be kept. If empty, the context is shortened at its end only.
struct KeptSpan {
  size_t begin = 0, end = 0;
};

/// Returns a run of whole words of `context` around `required` with tokens_with(run) <= `limit`. Words are added
/// alternately on both sides, by their own token counts. If the whole text then exceeds `limit`, words are removed from
/// the edges again. \param tokens_with  counts the tokens of the whole text with the given context.
/// \return nothing if the required words (without any: the first word) do not fit.
/// Cost: one pass over the context, and two or three calls of `tokens_with`.
std::optional<std::string> context_window(std::string_view context, KeptSpan required, int64_t limit,
                                          const tokenizer::Tokenizer& tokenizer,
                                          const std::function<int64_t(std::string_view)>& tokens_with);

}  // namespace evenkeel::data
