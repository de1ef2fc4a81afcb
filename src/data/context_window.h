/// \file  Shortens a row's context until its prompt fits. The question and the answer are never shortened.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace evenkeel::data {

/// The bytes [begin, end) of a context that must be kept. The empty span at 0 keeps the first word; the context is then
/// shortened only at its end.
struct KeptSpan {
  size_t begin = 0, end = 0;
};

/// Returns a run of whole words of `context` around `required` with tokens_with(run) <= `limit`. First, words are added
/// alternately on both sides while the sum of their token counts, each encoded alone, fits. Then words are removed from
/// the edges until the whole prompt fits, because tokens may differ at joins.
///
/// A word that does not even fit beside the required ones alone is split at characters of scripts without spaces
/// (option_places.h). Required words that do not fit are split there too, and then between all characters if they have
/// more bytes than `limit`. The parts count as words. REQUIRES UTF-8.
/// \param limit        largest number of tokens of the whole prompt
/// \param tokens_with  counts the tokens of the whole prompt with the given context
/// \return the shortened context; nothing if even the required words do not fit
/// Cost: one pass over the context, one encoding of each word that is tried, and two calls of `tokens_with`. Each word
/// that is removed (usually none or one) costs another call. After a split, about ten more calls use up the room that
/// parts leave, which take fewer tokens together than alone.
/// \throws kInternal for an empty context
std::optional<std::string> context_window(std::string_view context, KeptSpan required, int64_t limit,
                                          const tokenizer::Tokenizer& tokenizer,
                                          const std::function<int64_t(std::string_view)>& tokens_with);

}  // namespace evenkeel::data
