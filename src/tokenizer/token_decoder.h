/// \file  The decoder of a tokenizer.json: from tokens back to text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel {

/// ByteLevel, WordPiece, Metaspace, Replace, ByteFallback, Fuse, Strip and Sequences of them, as the `tokenizers`
/// library applies them; without a decoder tokens are joined by spaces. Immutable and thread-safe.
class TokenDecoder {
 public:
  TokenDecoder() = default;  ///< joins by spaces
  /// \throws kData with the place on a kind or key that is not supported.
  explicit TokenDecoder(const JsonView& json);

  /// The text of `tokens`, valid UTF-8. \throws kData when it becomes a thousand times as long as the tokens.
  std::string decode(std::vector<std::string> tokens) const;

  /// The only step is ByteLevel, so the text is the bytes of the tokens one after the other.
  bool is_byte_level() const { return is_byte_level_; }

 private:
  using Step = std::function<void(std::vector<std::string>&)>;

  void add(const JsonView& json);

  std::vector<Step> steps_;
  bool any_ = false, is_byte_level_ = false;
};

}  // namespace evenkeel
