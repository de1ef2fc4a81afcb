/// \file  Encodes words by byte-pair encoding: repeatedly merges the adjacent pair with the lowest rank. Words are
/// sequences of bytes (in GPT-2's printable alphabet) or of characters (with bytes as fallback for unknown characters).
/// Source: Sennrich et al. 2016 (BPE); Radford et al. 2019 (on bytes); Kudo and Richardson 2018 (byte fallback).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace evenkeel::tokenizer {

/// Returns GPT-2's alphabet: the code point for each byte. Printable bytes map to themselves, the other 68 to the code
/// points from U+0100 on.
std::array<uint32_t, 256> byte_alphabet();

/// Converts a token in the alphabet to its bytes. Returns nothing if a character is outside the alphabet.
std::optional<std::string> bytes_of_token(std::string_view token);

/// Converts bytes to a token in the alphabet (UTF-8).
std::string token_of_bytes(std::string_view bytes);

/// Options of the BPE model, as in tokenizer.json.
struct BpeOptions {
  std::string unk_token;       ///< token for an unknown byte or character; empty: unknown ones are dropped
  bool fuse_unk = false;       ///< true: a run of unknown characters gives one unk_token
  bool ignore_merges = false;  ///< true: a word in the vocabulary becomes one token, without merging
  bool byte_level = true;      ///< true: tokens are bytes in the alphabet; false: tokens are text
  bool byte_fallback = false;  ///< text only: an unknown character becomes a token "<0x..>" per byte
};

/// Encodes words. Immutable and thread-safe: each thread has its own cache of words of at most 2 MiB.
class BytePairEncoder {
 public:
  using Vocabulary = std::unordered_map<std::string, int64_t>;

  /// \param merges  in order of rank
  /// \throws kData if a merge or unk_token refers to a token outside the vocabulary, or if byte_level and byte_fallback
  /// are set and a character of the alphabet is outside the vocabulary.
  BytePairEncoder(const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
                  const BpeOptions& options);

  /// Appends the ids of one word to `out`. REQUIRES a non-empty word. Cost: one hash look-up for a cached word;
  /// otherwise O(n log n) in its bytes.
  void encode(std::string_view word, std::vector<int64_t>& out) const;

 private:
  struct Merge {
    uint64_t pair = kNoPair;
    uint32_t rank = 0, id = 0;
  };
  struct Symbol {
    uint32_t id;
    int32_t previous, next;
  };
  struct WordCache;
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static constexpr uint32_t kNoId = ~uint32_t{0};

  const Merge* find(uint32_t left, uint32_t right) const;
  void insert(Merge merge);
  void read_symbols(const Vocabulary& vocabulary, const BpeOptions& options);
  void read_characters(const Vocabulary& vocabulary, bool byte_fallback);
  void symbols_of(std::string_view word, std::vector<uint32_t>& ids) const;
  void characters_of(std::string_view word, std::vector<uint32_t>& ids) const;
  bool append_bytes(std::string_view character, std::vector<uint32_t>& ids) const;
  void merge_short(std::vector<uint32_t>& ids) const;
  void merge_long(std::vector<uint32_t>& ids) const;
  void encode_uncached(std::string_view word, std::vector<uint32_t>& ids) const;

  std::vector<Merge> table_;  ///< hash table, open addressing; the size is a power of two, at most half full
  uint64_t mask_ = 0;
  std::array<uint32_t, 256> byte_ids_{};                  ///< token of each byte: of the alphabet, or "<0x..>"
  std::unordered_map<uint32_t, uint32_t> character_ids_;  ///< token of each code point; text only
  uint32_t unk_id_ = kNoId;
  bool fuse_unk_ = false, byte_level_ = true;
  std::unordered_map<std::string, uint32_t> whole_words_;  ///< vocabulary; with ignore_merges only
  uint64_t instance_;                                      ///< distinguishes the encoders in the threads' caches
};

}  // namespace evenkeel::tokenizer
