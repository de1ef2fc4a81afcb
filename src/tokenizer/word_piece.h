/// \file  WordPiece: words to ids, the longest piece first. Source: Wu et al. 2016, as BERT uses it (Devlin et al.
/// 2019).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace evenkeel {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string prefix = "##";     ///< of pieces that go on within a word
  int64_t max_characters = 100;  ///< a longer word is unknown
};

/// Encodes words. Immutable and thread-safe.
class WordPieceEncoder {
 public:
  using Vocabulary = std::unordered_map<std::string, int64_t>;

  /// \throws kData when the unknown token is not in the vocabulary.
  WordPieceEncoder(const Vocabulary& vocabulary, const WordPieceOptions& options);

  /// Appends the ids of one word of valid UTF-8, non-empty; the unknown token's when some part of it is no piece.
  /// Cost: at most a hash look-up for each piece of each position of the longest word allowed.
  void encode(std::string_view word, std::vector<int64_t>& out) const;

 private:
  /// Looks up views without making strings of them.
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Pieces = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;

  Pieces first_, next_;  ///< pieces that begin a word, and those that go on, without their prefix
  size_t longest_ = 0;   ///< bytes
  int64_t unk_id_;
  int64_t max_characters_;
};

}  // namespace evenkeel
