/// \file  Trains the byte-level BPE tokenizer of the built-in model and saves it as a `tokenizer.json` that the
/// `tokenizers` library loads and encodes with identically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

struct TokenizerTraining {
  int64_t vocab_size = 2048;  ///< ids in all: special tokens, 256 bytes, merges
  std::vector<std::string> special_tokens = {"<|endoftext|>", "<|padding|>"};  ///< take the first ids
  int64_t min_frequency = 2;  ///< a pair seen fewer times is not merged
};

/// Trains on `texts` and returns the tokenizer.json text. Deterministic: ties go to the pair whose tokens come first by
/// id. Source: Sennrich et al. 2016, on bytes as GPT-2 does. Cost: O(merges * occurrences), with incremental pair
/// counts.
std::string train_tokenizer(std::span<const std::string> texts, const TokenizerTraining& training);

}  // namespace evenkeel
