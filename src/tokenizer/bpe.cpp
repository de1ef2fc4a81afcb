#include "tokenizer/bpe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <queue>
#include <utility>

#include "base/plain/error.h"
#include "base/unicode/unicode.h"

namespace evenkeel::tokenizer {
namespace {

// Up to this length, scanning all pairs is faster than a heap.
constexpr size_t kShortWord = 48;

uint64_t mix(uint64_t x) {
  x *= 0x9E3779B97F4A7C15ull;
  return x ^ (x >> 32);
}

uint64_t load(const char* at, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return value;
}

uint64_t hash_of(std::string_view word) {
  uint64_t hash = word.size();
  size_t at = 0;
  for (; at + 8 <= word.size(); at += 8) hash = mix(hash ^ load(word.data() + at, 8));
  return mix(hash ^ load(word.data() + at, word.size() - at));
}

bool is_printable_byte(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174; }

uint64_t next_instance() {
  static std::atomic<uint64_t> count{0};
  return ++count;
}

}  // namespace

std::array<uint32_t, 256> byte_alphabet() {
  std::array<uint32_t, 256> alphabet;
  uint32_t extra = 256;
  for (int byte = 0; byte < 256; ++byte) alphabet[byte] = is_printable_byte(byte) ? byte : extra++;
  return alphabet;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  static const auto inverse = [] {
    std::array<int, 0x144> bytes;
    bytes.fill(-1);
    const auto alphabet = byte_alphabet();
    for (int byte = 0; byte < 256; ++byte) bytes[alphabet[byte]] = byte;
    return bytes;
  }();
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const auto code = unicode::decode(token.data() + at);
    if (code.value >= inverse.size() || inverse[code.value] < 0) return std::nullopt;
    out += static_cast<char>(inverse[code.value]);
    at += code.length;
  }
  return out;
}

std::string token_of_bytes(std::string_view bytes) {
  static const auto alphabet = byte_alphabet();
  std::string out;
  for (const char byte : bytes) unicode::append(out, alphabet[static_cast<unsigned char>(byte)]);
  return out;
}

/// A direct-mapped cache: a new word replaces the old one in its slot. A slot is one cache line.
struct BytePairEncoder::WordCache {
  static constexpr size_t kSlots = size_t{1} << 15;
  static constexpr size_t kBytes = 30, kIds = 8;
  struct alignas(64) Slot {
    uint8_t length = 0, count = 0;
    char bytes[kBytes];
    uint32_t ids[kIds];
  };

  static WordCache& of_this_thread(uint64_t instance) {
    thread_local WordCache cache;
    if (cache.owner != instance) {
      cache.slots.assign(kSlots, Slot{});
      cache.owner = instance;
    }
    return cache;
  }
  Slot& slot(std::string_view word) { return slots[hash_of(word) & (kSlots - 1)]; }

  std::vector<Slot> slots;
  std::vector<uint32_t> scratch;
  uint64_t owner = 0;
};

BytePairEncoder::BytePairEncoder(const Vocabulary& vocabulary,
                                 const std::vector<std::pair<std::string, std::string>>& merges,
                                 const BpeOptions& options)
    : fuse_unk_(options.fuse_unk), byte_level_(options.byte_level), instance_(next_instance()) {
  const auto id_of = [&](const std::string& token, std::string_view user) {
    const auto found = vocabulary.find(token);
    EK_CHECK(found != vocabulary.end(), kData, user, ": \"", token, "\" is not in the vocabulary");
    return static_cast<uint32_t>(found->second);
  };
  read_symbols(vocabulary, options);
  if (!options.unk_token.empty()) unk_id_ = id_of(options.unk_token, "unk_token");
  table_.resize(std::bit_ceil(2 * merges.size() + 2));
  mask_ = table_.size() - 1;
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const uint64_t pair = static_cast<uint64_t>(id_of(left, "merges")) << 32 | id_of(right, "merges");
    insert({pair, rank, id_of(left + right, "merges")});
  }
  if (options.ignore_merges)
    for (const auto& [token, id] : vocabulary)
      if (const auto bytes = byte_level_ ? bytes_of_token(token) : token)
        whole_words_.emplace(*bytes, static_cast<uint32_t>(id));
}

void BytePairEncoder::read_symbols(const Vocabulary& vocabulary, const BpeOptions& options) {
  byte_ids_.fill(kNoId);
  if (!byte_level_) return read_characters(vocabulary, options.byte_fallback);
  const auto alphabet = byte_alphabet();
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    unicode::append(symbol, alphabet[byte]);
    const auto found = vocabulary.find(symbol);
    if (found != vocabulary.end()) byte_ids_[byte] = static_cast<uint32_t>(found->second);
    EK_CHECK(found != vocabulary.end() || !options.byte_fallback, kData,
             "model.byte_fallback is true with a ByteLevel pre-tokenizer, whose character \"", symbol,
             "\" is not in the vocabulary");
  }
}

void BytePairEncoder::read_characters(const Vocabulary& vocabulary, bool byte_fallback) {
  for (const auto& [token, id] : vocabulary) {
    if (token.empty()) continue;
    const auto code = unicode::decode(token.data());
    if (code.length == token.size()) character_ids_.emplace(code.value, static_cast<uint32_t>(id));
  }
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256 && byte_fallback; ++byte) {
    const auto found = vocabulary.find(concat("<0x", kDigits.substr(byte >> 4, 1), kDigits.substr(byte & 15, 1), ">"));
    if (found != vocabulary.end()) byte_ids_[byte] = static_cast<uint32_t>(found->second);
  }
}

/// Inserts a merge. A pair that is listed twice has its last rank, as in the tokenizers library.
void BytePairEncoder::insert(Merge merge) {
  uint64_t at = mix(merge.pair) & mask_;
  while (table_[at].pair != kNoPair && table_[at].pair != merge.pair) at = (at + 1) & mask_;
  table_[at] = merge;
}

const BytePairEncoder::Merge* BytePairEncoder::find(uint32_t left, uint32_t right) const {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | right;
  for (uint64_t at = mix(pair) & mask_;; at = (at + 1) & mask_) {
    if (table_[at].pair == pair) return &table_[at];
    if (table_[at].pair == kNoPair) return nullptr;
  }
}

void BytePairEncoder::symbols_of(std::string_view word, std::vector<uint32_t>& ids) const {
  ids.clear();
  bool after_unk = false;
  for (const char byte : word) {
    const uint32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id != kNoId)
      ids.push_back(id);
    else if (unk_id_ != kNoId && !(after_unk && fuse_unk_))
      ids.push_back(unk_id_);
    after_unk = id == kNoId;
  }
}

/// Appends the byte tokens of a character. Returns false if some byte has no token.
bool BytePairEncoder::append_bytes(std::string_view character, std::vector<uint32_t>& ids) const {
  for (const char byte : character)
    if (byte_ids_[static_cast<unsigned char>(byte)] == kNoId) return false;
  for (const char byte : character) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  return true;
}

/// Converts a word to ids of characters. As in the tokenizers library, an unknown character is emitted only before the
/// next known one, so byte tokens overtake it.
void BytePairEncoder::characters_of(std::string_view word, std::vector<uint32_t>& ids) const {
  ids.clear();
  bool pending = false;
  for (size_t at = 0; at < word.size();) {
    const auto code = unicode::decode(word.data() + at);
    const auto character = word.substr(at, code.length);
    at += code.length;
    const auto found = character_ids_.find(code.value);
    if (found != character_ids_.end()) {
      if (std::exchange(pending, false)) ids.push_back(unk_id_);
      ids.push_back(found->second);
    } else if (!append_bytes(character, ids) && unk_id_ != kNoId) {
      if (pending && !fuse_unk_) ids.push_back(unk_id_);
      pending = true;
    }
  }
  if (pending) ids.push_back(unk_id_);
}

void BytePairEncoder::merge_short(std::vector<uint32_t>& ids) const {
  std::array<const Merge*, kShortWord> merges;  // merges[i] joins ids[i] and ids[i + 1]
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = count;
    uint32_t rank = kNoId;
    for (size_t i = 0; i + 1 < count; ++i)
      if (merges[i] && merges[i]->rank < rank) rank = merges[best = i]->rank;
    if (best == count) break;
    ids[best] = merges[best]->id;
    --count;
    for (size_t i = best + 1; i < count; ++i) ids[i] = ids[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) merges[i] = merges[i + 1];
    if (best + 1 < count) merges[best] = find(ids[best], ids[best + 1]);
    if (best > 0) merges[best - 1] = find(ids[best - 1], ids[best]);
  }
  ids.resize(count);
}

/// Merges with a heap of candidates over a linked list of symbols. Candidates whose pair has changed are skipped.
void BytePairEncoder::merge_long(std::vector<uint32_t>& ids) const {
  struct Candidate {
    uint32_t rank;
    int32_t at;
    uint32_t id;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  const auto size = static_cast<int32_t>(ids.size());
  std::vector<Symbol> list(ids.size());
  std::vector<Candidate> first;
  for (int32_t i = 0; i < size; ++i) {
    list[i] = {ids[i], i - 1, i + 1 < size ? i + 1 : -1};
    if (i + 1 == size) break;
    if (const auto* merge = find(ids[i], ids[i + 1])) first.push_back({merge->rank, i, merge->id});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(), std::move(first));
  const auto offer = [&](int32_t at) {
    if (at < 0 || list[at].next < 0) return;
    if (const auto* merge = find(list[at].id, list[list[at].next].id)) queue.push({merge->rank, at, merge->id});
  };
  while (!queue.empty()) {
    const auto top = queue.top();
    queue.pop();
    auto& left = list[top.at];
    if (left.id == kNoId || left.next < 0) continue;
    const auto* merge = find(left.id, list[left.next].id);
    if (!merge || merge->id != top.id) continue;
    list[left.next].id = kNoId;
    left = {top.id, left.previous, list[left.next].next};
    if (left.next >= 0) list[left.next].previous = top.at;
    offer(left.previous);
    offer(top.at);
  }
  size_t count = 0;
  for (const auto& symbol : list)
    if (symbol.id != kNoId) ids[count++] = symbol.id;
  ids.resize(count);
}

void BytePairEncoder::encode_uncached(std::string_view word, std::vector<uint32_t>& ids) const {
  if (!whole_words_.empty()) {
    if (const auto found = whole_words_.find(std::string(word)); found != whole_words_.end()) {
      ids.assign(1, found->second);
      return;
    }
  }
  byte_level_ ? symbols_of(word, ids) : characters_of(word, ids);
  ids.size() <= kShortWord ? merge_short(ids) : merge_long(ids);
}

void BytePairEncoder::encode(std::string_view word, std::vector<int64_t>& out) const {
  auto& cache = WordCache::of_this_thread(instance_);
  const bool cacheable = word.size() <= WordCache::kBytes;
  auto& slot = cache.slot(cacheable ? word : word.substr(0, 1));
  if (cacheable && slot.length == word.size() && std::memcmp(slot.bytes, word.data(), word.size()) == 0) {
    out.insert(out.end(), slot.ids, slot.ids + slot.count);
    return;
  }
  std::vector<uint32_t> own;
  auto& ids = cacheable ? cache.scratch : own;  // the memory of a huge word is freed
  encode_uncached(word, ids);
  out.insert(out.end(), ids.begin(), ids.end());
  if (!cacheable || ids.size() > WordCache::kIds) return;
  slot.length = static_cast<uint8_t>(word.size());
  slot.count = static_cast<uint8_t>(ids.size());
  std::memcpy(slot.bytes, word.data(), word.size());
  std::copy(ids.begin(), ids.end(), slot.ids);
}

}  // namespace evenkeel::tokenizer
