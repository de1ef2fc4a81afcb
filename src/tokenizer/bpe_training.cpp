#include "tokenizer/bpe_training.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/unicode/unicode.h"
#include "tokenizer/bpe.h"
#include "tokenizer/split.h"

namespace evenkeel::tokenizer {
namespace {

using Pair = uint64_t;  // the left id is in the upper half, so that pairs order as (left, right)

Pair pair_of(uint32_t left, uint32_t right) { return static_cast<Pair>(left) << 32 | right; }

struct Word {
  std::vector<uint32_t> symbols;
  int64_t count;
};

struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct PairUse {
  int64_t count = 0;
  std::vector<uint32_t> words;  ///< indices of words; may contain repetitions, and words without the pair
};

class Trainer {
 public:
  Trainer(std::span<const std::string> texts, const TokenizerTraining& training) : training_(training) {
    add_symbols();
    count_words(texts);
    count_pairs();
  }

  std::string run() {
    while (static_cast<int64_t>(tokens_.size()) < training_.vocab_size)
      if (!merge_best()) break;
    return to_json();
  }

 private:
  uint32_t add_token(const std::string& token) {
    const auto [entry, added] = ids_.try_emplace(token, static_cast<uint32_t>(tokens_.size()));
    if (added) tokens_.push_back(token);
    return entry->second;
  }

  /// Adds special tokens, then the bytes in the order of their symbols.
  void add_symbols() {
    const auto alphabet = byte_alphabet();
    std::vector<int> order(256);
    for (int byte = 0; byte < 256; ++byte) order[byte] = byte;
    std::sort(order.begin(), order.end(), [&](int a, int b) { return alphabet[a] < alphabet[b]; });
    for (const auto& token : training_.special_tokens) add_token(token);
    for (const int byte : order) byte_ids_[byte] = add_token(token_of_bytes(std::string(1, static_cast<char>(byte))));
    const auto expected = training_.special_tokens.size() + 256;
    EK_CHECK(tokens_.size() == expected, kConfig, "special tokens ", join(training_.special_tokens),
             ": one is listed twice or is a byte");
    EK_CHECK(training_.vocab_size >= static_cast<int64_t>(expected), kConfig, "tokenizer vocab_size is ",
             training_.vocab_size, ", allowed: at least ", expected, " (special tokens and 256 bytes)");
  }

  void count_words(std::span<const std::string> texts) {
    std::unordered_map<std::string, int64_t> counts;
    std::string storage;
    for (const auto& text : texts) {
      const size_t invalid = unicode::find_invalid(text);
      EK_CHECK(invalid == std::string::npos, kData, "training text is not UTF-8: invalid byte at offset ", invalid);
      for (auto rest = unicode::nfc(text, storage); !rest.empty();) {
        const size_t length = gpt2_word(rest);
        ++counts[std::string(rest.substr(0, length))];
        rest.remove_prefix(length);
      }
    }
    for (const auto& [bytes, count] : counts) {
      Word word{{}, count};
      for (const char byte : bytes) word.symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
      words_.push_back(std::move(word));
    }
  }

  void count_pairs() {
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const auto& symbols = words_[w].symbols;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) change(pair_of(symbols[i], symbols[i + 1]), w, words_[w].count);
    }
    for (const auto& [pair, use] : pairs_) queue_.push({use.count, pair});
  }

  void change(Pair pair, uint32_t word, int64_t by) {
    auto& use = pairs_[pair];
    use.count += by;
    if (by > 0 && (use.words.empty() || use.words.back() != word)) use.words.push_back(word);
  }

  /// Merges the most frequent pair. Returns false if no pair is frequent enough. Queue entries with outdated counts are
  /// pushed again with the current count.
  bool merge_best() {
    while (!queue_.empty()) {
      const auto top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      if (found == pairs_.end()) continue;
      if (found->second.count != top.count) {
        if (found->second.count > 0 && found->second.count < top.count) queue_.push({found->second.count, top.pair});
        continue;
      }
      if (top.count < std::max<int64_t>(training_.min_frequency, 1)) return false;
      merge(top.pair);
      return true;
    }
    return false;
  }

  void merge(Pair pair) {
    const auto left = static_cast<uint32_t>(pair >> 32), right = static_cast<uint32_t>(pair);
    const uint32_t joined = add_token(tokens_[left] + tokens_[right]);
    merges_.emplace_back(left, right);
    auto words = std::move(pairs_[pair].words);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    grown_.clear();
    for (const uint32_t word : words) merge_in(word, left, right, joined);
    pairs_.erase(pair);
    std::sort(grown_.begin(), grown_.end());
    grown_.erase(std::unique(grown_.begin(), grown_.end()), grown_.end());
    for (const Pair other : grown_)
      if (const auto found = pairs_.find(other); found != pairs_.end()) queue_.push({found->second.count, other});
  }

  void merge_in(uint32_t w, uint32_t left, uint32_t right, uint32_t joined) {
    auto& [symbols, count] = words_[w];
    size_t length = 0;
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (i + 1 == symbols.size() || symbols[i] != left || symbols[i + 1] != right) {
        symbols[length++] = symbols[i];
        continue;
      }
      if (length > 0) replace(pair_of(symbols[length - 1], left), pair_of(symbols[length - 1], joined), w, count);
      if (i + 2 < symbols.size()) replace(pair_of(right, symbols[i + 2]), pair_of(joined, symbols[i + 2]), w, count);
      symbols[length++] = joined;
      ++i;
    }
    symbols.resize(length);
  }

  void replace(Pair old_pair, Pair new_pair, uint32_t word, int64_t count) {
    change(old_pair, word, -count);
    change(new_pair, word, count);
    grown_.push_back(new_pair);
  }

  std::string added_tokens_json() const {
    std::string out;
    for (const auto& token : training_.special_tokens) {
      const OrderedJson entry = {{"id", ids_.at(token)}, {"content", token}, {"single_word", false},
                                 {"lstrip", false},      {"rstrip", false},  {"normalized", false},
                                 {"special", true}};
      out += (out.empty() ? "\n    " : ",\n    ") + entry.dump();
    }
    return out;
  }

  std::string vocabulary_json() const {
    std::string out;
    for (size_t id = 0; id < tokens_.size(); ++id)
      out += concat(id == 0 ? "\n      " : ",\n      ", Json(tokens_[id]).dump(), ": ", id);
    return out;
  }

  std::string merges_json() const {
    std::string out;
    for (const auto& [left, right] : merges_)
      out += (out.empty() ? "\n      " : ",\n      ") + Json(tokens_[left] + " " + tokens_[right]).dump();
    return out;
  }

  std::string to_json() const {
    constexpr std::string_view kByteLevel =
        R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
    return concat(
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [",
        added_tokens_json(), "\n  ],\n  \"normalizer\": {\"type\": \"NFC\"},\n  \"pre_tokenizer\": ", kByteLevel,
        ",\n  \"post_processor\": ", kByteLevel, ",\n  \"decoder\": ", kByteLevel,
        ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
        "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {",
        vocabulary_json(), "\n    },\n    \"merges\": [", merges_json(), "\n    ]\n  }\n}\n");
  }

  const TokenizerTraining& training_;
  std::vector<std::string> tokens_;  ///< the token of each id
  std::unordered_map<std::string, uint32_t> ids_;
  std::array<uint32_t, 256> byte_ids_{};
  std::vector<Word> words_;
  std::unordered_map<Pair, PairUse> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::pair<uint32_t, uint32_t>> merges_;
  std::vector<Pair> grown_;  ///< pairs that the current merge made more frequent
};

}  // namespace

std::string train_tokenizer(std::span<const std::string> texts, const TokenizerTraining& training) {
  return Trainer(texts, training).run();
}

}  // namespace evenkeel::tokenizer
