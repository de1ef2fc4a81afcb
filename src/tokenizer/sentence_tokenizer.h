/// \file  Encodes texts for BERT-like encoders. Surrounding white space is removed, the text is truncated, and a
/// special token is added at each end. Byte-level BPE gets a leading space, so that the first word is encoded like any
/// other; WordPiece gets NFC.
///
/// The ids equal those of the bert_score package with transformers' slow tokenizers. In two cases they equal the ids of
/// the `tokenizers` library instead: a tokenizer that adds a space before words also adds one after a special token
/// inside a text, and an uncased WordPiece turns a capital sigma at the end of a Greek word into the letter used inside
/// words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace evenkeel::tokenizer {

/// An encoded text.
struct Sentence {
  std::vector<int64_t> ids;  ///< first() ... last(); only these two for a blank text
  bool cut = false;          ///< true: the text was truncated
};

/// A tokenizer for encoders. Immutable and thread-safe.
class SentenceTokenizer {
 public:
  /// Reads tokenizer.json of a model folder and, if present, `model_max_length` of tokenizer_config.json.
  /// \param max_tokens  longest sequence that the encoder accepts; the smaller of the two limits applies
  /// \throws kData naming the file if tokenizer.json is missing, if the tokenizer is not supported, does not add
  /// exactly one special token at each end or truncates texts at their beginning, or if one of the limits is below 3
  static SentenceTokenizer load(const std::filesystem::path& folder, int64_t max_tokens);

  /// Encodes one text. \throws kData for invalid UTF-8.
  Sentence encode(std::string_view text) const;

  int64_t first() const { return first_; }            ///< e.g. [CLS] or <s>
  int64_t last() const { return last_; }              ///< e.g. [SEP] or </s>
  int64_t max_tokens() const { return max_tokens_; }  ///< longest sequence, including special tokens

 private:
  SentenceTokenizer(Tokenizer tokenizer, int64_t first, int64_t last, int64_t max_tokens);

  std::string prepared(std::string_view body) const;

  Tokenizer tokenizer_;
  int64_t first_, last_, max_tokens_;
};

}  // namespace evenkeel::tokenizer
