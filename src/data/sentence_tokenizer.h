/// \file  Texts as encoders of the BERT kind take them: white space around them removed, a space in front so that the
/// first word is cut like any other, cut to a length, a special token at each end. Ids as the bert_score package has
/// them from transformers' slow byte-level tokenizers (where tokenizer.json itself adds spaces, words behind a special
/// token inside a text get one too, which those do not).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace evenkeel {

struct Sentence {
  std::vector<int64_t> ids;  ///< first() ... last(); only these two when the text is blank
  bool cut = false;          ///< its end was left out
};

class SentenceTokenizer {
 public:
  /// Reads tokenizer.json of a model folder and, where there is one, `model_max_length` of tokenizer_config.json.
  /// \param max_tokens  longest sequence the encoder takes; the shorter of the two counts
  /// \throws kData naming the file: a tokenizer that is not byte-level BPE, does not put one special token at each end,
  /// or cuts texts at their beginning.
  static SentenceTokenizer load(const std::filesystem::path& folder, int64_t max_tokens);

  /// \throws kData on bytes that are not UTF-8.
  Sentence encode(std::string_view text) const;

  int64_t first() const { return first_; }            ///< [CLS], <s>
  int64_t last() const { return last_; }              ///< [SEP], </s>
  int64_t max_tokens() const { return max_tokens_; }  ///< special tokens included

 private:
  SentenceTokenizer(Tokenizer tokenizer, int64_t first, int64_t last, int64_t max_tokens);

  Tokenizer tokenizer_;
  int64_t first_, last_, max_tokens_;
};

}  // namespace evenkeel
