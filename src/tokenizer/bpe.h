/// \file  Byte-pair encoding: words to ids by the merges of lowest rank, on bytes in GPT-2's printable alphabet or on
/// characters, those without a token as their bytes. Source: Sennrich et al. 2016 (BPE); Radford et al. 2019 (on
/// bytes); Kudo and Richardson 2018 (bytes for unknown characters).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace evenkeel {

/// GPT-2's alphabet: printable bytes stand for themselves, the other 68 for the code points from U+0100 on.
std::array<uint32_t, 256> byte_alphabet();

/// The bytes a token of the alphabet stands for; nothing when it has a character outside the alphabet.
std::optional<std::string> bytes_of_token(std::string_view token);

/// `bytes` written in the alphabet (UTF-8).
std::string token_of_bytes(std::string_view bytes);

struct BpeOptions {
  std::string unk_token;       ///< for a byte or character that has no token; empty: such vanish
  bool fuse_unk = false;       ///< one unk for a run of such
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever the merges say
  bool byte_level = true;      ///< tokens are bytes in the alphabet; else they are text
  bool byte_fallback = false;  ///< of text: a character without a token becomes "<0x..>" for each of its bytes
};

/// Encodes words. Immutable and thread-safe: each thread has its own cache of words, bounded (2 MiB).
class BytePairEncoder {
 public:
  using Vocabulary = std::unordered_map<std::string, int64_t>;

  /// `merges` in order of rank. \throws kData when a merge or the unk token has a part that is not in the vocabulary,
  /// or bytes in the alphabet would need the fallback.
  BytePairEncoder(const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
                  const BpeOptions& options);

  /// Appends the ids of one word, non-empty. Cost: a hash look-up for a word seen before; else O(n log n) in its bytes.
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

  std::vector<Merge> table_;  ///< open addressing, a power of two, at most half full
  uint64_t mask_ = 0;
  std::array<uint32_t, 256> byte_ids_{};                  ///< of the alphabet, or "<0x..>"
  std::unordered_map<uint32_t, uint32_t> character_ids_;  ///< by code point; of text only
  uint32_t unk_id_ = kNoId;
  bool fuse_unk_ = false, byte_level_ = true;
  std::unordered_map<std::string, uint32_t> whole_words_;  ///< for ignore_merges only
  uint64_t instance_;                                      ///< tells the caches of different encoders apart
};

}  // namespace evenkeel
