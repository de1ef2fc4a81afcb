/// \file  Trains the byte-level BPE tokenizer of the built-in model. The result is a `tokenizer.json` that the
/// `tokenizers` library can load and that gives the same ids there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::tokenizer {

/// Options of train_tokenizer().
struct TokenizerTraining {
  int64_t vocab_size = 2048;  ///< number of ids: special tokens, 256 bytes and merges
  /// Special tokens; they get the first ids.
  std::vector<std::string> special_tokens = {"<|endoftext|>", "<|padding|>"};
  int64_t min_frequency = 2;  ///< pairs that occur less often are not merged
};

/// Trains on `texts` and returns the content of tokenizer.json. Deterministic: of equally frequent pairs, the one with
/// the smaller ids is merged first. Source: Sennrich et al. 2016, on bytes as in GPT-2. Cost: O(merges * occurrences),
/// with incremental pair counts.
std::string train_tokenizer(std::span<const std::string> texts, const TokenizerTraining& training);

}  // namespace evenkeel::tokenizer
