/// \file  Implements the normalizer "Precompiled" of a tokenizer.json: SentencePiece's table of replacements, a
/// double-array trie of byte sequences. Source: Kudo and Richardson 2018 (SentencePiece); the format is that of
/// Darts-clone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"

namespace evenkeel::tokenizer {

/// A table of replacements. As in the `tokenizers` library, a grapheme cluster of at most five bytes is replaced as a
/// whole by the text of the shortest key that begins it; in longer clusters, and in those without a key, each code
/// point is replaced by itself. Immutable and thread-safe.
class Charsmap {
 public:
  /// Reads the key precompiled_charsmap, in Base64. \throws kData with the place if it is no table.
  explicit Charsmap(const JsonView& json);

  /// Returns the text with replacements, or nothing if there is none. Cost: O(n) steps in the trie. REQUIRES valid
  /// UTF-8. \throws kData if the table points outside of itself.
  std::optional<std::string> apply(std::string_view text) const;

 private:
  uint32_t unit(uint64_t at) const;
  std::optional<std::string_view> replacement(std::string_view part) const;
  std::string_view text_at(size_t begin) const;
  bool append(std::string_view cluster, std::string& out) const;

  std::vector<uint32_t> units_;
  std::string texts_;  ///< each ends with a zero byte
};

}  // namespace evenkeel::tokenizer
