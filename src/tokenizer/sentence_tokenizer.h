/// \file  Texts as encoders of the BERT kind take them: white space around them removed, cut to a length, a special
/// token at each end; for byte-level BPE with a space in front, so that the first word is cut like any other, for
/// WordPiece in NFC. Ids as the bert_score package has them from transformers' slow tokenizers, but for two corners
/// where the `tokenizers` library parts with those: where tokenizer.json itself adds spaces, words behind a special
/// token inside a text get one too; and an uncased WordPiece makes the capital sigma that ends a Greek word the small
/// letter of the inside of words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace evenkeel {

struct Sentence {
  std::vector<int64_t> ids;  ///< first() ... last(); only these two when the text is blank
  bool cut = false;          ///< its end was left out
};

class SentenceTokenizer {
 public:
  /// Reads tokenizer.json of a model folder and, where there is one, `model_max_length` of tokenizer_config.json.
  /// \param max_tokens  longest sequence the encoder takes; the shorter of the two counts
  /// \throws kData naming the file: a tokenizer that Tokenizer does not read, does not put one special token at each
  /// end, or cuts texts at their beginning.
  static SentenceTokenizer load(const std::filesystem::path& folder, int64_t max_tokens);

  /// \throws kData on bytes that are not UTF-8.
  Sentence encode(std::string_view text) const;

  int64_t first() const { return first_; }            ///< [CLS], <s>
  int64_t last() const { return last_; }              ///< [SEP], </s>
  int64_t max_tokens() const { return max_tokens_; }  ///< special tokens included

 private:
  SentenceTokenizer(Tokenizer tokenizer, int64_t first, int64_t last, int64_t max_tokens);

  std::string prepared(std::string_view body) const;

  Tokenizer tokenizer_;
  int64_t first_, last_, max_tokens_;
};

}  // namespace evenkeel
