/// \file  Encodes words by WordPiece: takes the longest known piece at each position. Source: Wu et al. 2016, as used
/// by BERT (Devlin et al. 2019).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace evenkeel::tokenizer {

/// Options of the WordPiece model, as in tokenizer.json.
struct WordPieceOptions {
  std::string unk_token = "[UNK]";  ///< token of a word that cannot be encoded
  std::string prefix = "##";        ///< prefix of pieces that continue a word
  int64_t max_characters = 100;     ///< a longer word becomes unk_token
};

/// Encodes words. Immutable and thread-safe.
class WordPieceEncoder {
 public:
  using Vocabulary = std::unordered_map<std::string, int64_t>;

  /// Creates an encoder. \throws kData if unk_token is not in the vocabulary.
  WordPieceEncoder(const Vocabulary& vocabulary, const WordPieceOptions& options);

  /// Appends the ids of one word to `out`; if a part of the word is not in the vocabulary, only the id of unk_token.
  /// REQUIRES a non-empty word in valid UTF-8. Cost: at each position, one look-up per length from the longest piece
  /// down.
  void encode(std::string_view word, std::vector<int64_t>& out) const;

 private:
  /// Allows look-ups by string_view without creating strings.
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Pieces = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;

  Pieces first_, next_;  ///< pieces that begin a word; pieces that continue one, without their prefix
  size_t longest_ = 0;   ///< length of the longest piece, bytes
  int64_t unk_id_;
  int64_t max_characters_;
};

}  // namespace evenkeel::tokenizer
