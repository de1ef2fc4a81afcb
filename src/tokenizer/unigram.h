/// \file  Encodes words by a unigram language model: of all divisions into pieces, the one with the highest sum of
/// scores (log-probabilities), found by the Viterbi algorithm. Source: Kudo 2018 (subword regularization), as in
/// SentencePiece. Ids equal those of the `tokenizers` library, also where several divisions have equal sums.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/piece_trie.h"

namespace evenkeel::tokenizer {

/// Options and vocabulary of the unigram model, as in tokenizer.json. The id of a piece is its index. Of equal pieces,
/// texts get the last.
struct UnigramOptions {
  std::vector<std::string> pieces;
  std::vector<double> scores;     ///< one per piece
  std::optional<int64_t> unk_id;  ///< piece of unknown characters; a run of them gives one token
  bool byte_fallback = false;  ///< true: a run of unknown characters becomes tokens "<0x..>", if there is one per byte
};

/// Encodes words. Immutable and thread-safe.
class UnigramEncoder {
 public:
  static constexpr size_t kLongestPiece = 4096;  ///< bytes of a piece; SentencePiece's own default is 16 characters
  static constexpr size_t kMostBytes = size_t{1} << 24;  ///< bytes of all pieces together

  /// \throws kData if a piece is too long or has no score that is a finite number, if the pieces together are too long,
  /// or if unk_id is not in the vocabulary.
  explicit UnigramEncoder(UnigramOptions options);

  /// Appends the ids of one word to `out`. REQUIRES a non-empty word in valid UTF-8. Cost: O(n l) in its bytes n and
  /// the bytes l of the longest piece; memory 16 n bytes. \throws kData for an unknown character if there is no unk_id.
  void encode(std::string_view word, std::vector<int64_t>& out) const;

 private:
  /// The best division of the text before a position: its score and its last piece.
  struct Best {
    double score = 0;
    uint32_t length = 0;  ///< bytes of the last piece; 0: no division is known
    int32_t piece = -1;
  };

  static void offer(Best& best, double score, size_t length, int32_t piece);
  void offer_unknown(Best& best, double before, std::string_view character) const;
  std::vector<Best> best_divisions(std::string_view word) const;
  void append_unknown(std::string_view run, std::vector<int64_t>& out) const;

  std::vector<double> scores_;
  std::unordered_map<std::string, int64_t> ids_;
  std::array<int64_t, 256> byte_ids_{};  ///< -1: none
  int32_t unk_id_ = -1;
  double unk_score_ = 0;
  PieceTrie trie_;
};

}  // namespace evenkeel::tokenizer
