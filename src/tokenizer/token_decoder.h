/// \file  Converts tokens back to text with the decoder of a tokenizer.json.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::tokenizer {

/// The decoder of a tokenizer.json: ByteLevel, WordPiece, Metaspace, Replace, ByteFallback, Fuse, Strip and Sequences
/// of them, as in the `tokenizers` library. Without a decoder, tokens are joined by spaces. Immutable and thread-safe.
class TokenDecoder {
 public:
  TokenDecoder() = default;  ///< joins by spaces
  /// Reads a decoder. \throws the error kind of `json`, with the position of an unsupported kind or key.
  explicit TokenDecoder(const JsonView& json);

  /// Returns the text of `tokens`, valid UTF-8. \throws kData if it becomes more than about 1,000 times as long as the
  /// tokens.
  std::string decode(std::vector<std::string> tokens) const;

  /// Returns true if ByteLevel is the only step. The text is then the concatenation of the tokens' bytes, with invalid
  /// UTF-8 replaced by U+FFFD.
  bool is_byte_level() const { return is_byte_level_; }

 private:
  using Step = std::function<void(std::vector<std::string>&)>;

  void add(const JsonView& json);

  std::vector<Step> steps_;
  bool any_ = false, is_byte_level_ = false;
};

}  // namespace evenkeel::tokenizer
