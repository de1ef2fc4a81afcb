#include "data/context_window.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "base/unicode/graphemes.h"
#include "base/unicode/unicode.h"
#include "data/option_places.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

/// Returns the offset of each word, including the blanks before it. The last entry is the end of the text.
std::vector<size_t> word_starts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size();) {
    starts.push_back(at);
    const size_t word = text.find_first_not_of(kBlank, at);
    at = std::min(text.find_first_of(kBlank, word), text.size());
  }
  starts.push_back(text.size());
  return starts;
}

/// Selects where a word is split.
enum class Split {
  kUnspaced,   ///< before and after characters of scripts without spaces
  kEverywhere  ///< between all characters
};

/// Returns the offsets of the parts of the word [begin, end). The first part includes the blanks before the word.
std::vector<size_t> part_starts(std::string_view text, size_t begin, size_t end, Split split) {
  std::vector<size_t> starts{begin};
  const size_t first = std::min(text.find_first_not_of(kBlank, begin), end);
  bool before = false;
  for (size_t at = first; at < end; at += unicode::grapheme_length(text.substr(at, end - at))) {
    const bool here = split == Split::kEverywhere || is_unspaced(unicode::decode(text.data() + at).value);
    if (at > first && (before || here)) starts.push_back(at);
    before = here;
  }
  return starts;
}

/// A range of words [first, last) that grows and shrinks around the required words.
class Window {
 public:
  Window(std::string_view text, KeptSpan required, const tokenizer::Tokenizer& tokenizer)
      : text_(text), required_(required), tokenizer_(tokenizer), starts_(word_starts(text)) {
    keep_required();
  }

  std::string_view text() const {
    const auto run = text_.substr(starts_[first_], starts_[last_] - starts_[first_]);
    return run.substr(std::min(run.find_first_not_of(kBlank), run.size()));
  }

  /// Returns true if a word was split.
  bool is_split() const { return is_split_; }

  /// Splits the required words of more than `bytes` bytes, and keeps the required parts.
  void split_required(Split split, int64_t bytes) {
    split_words(split, [&](size_t word) { return is_required(word) && size(word) > bytes; });
  }

  /// Splits the other words that have more than `capacity` tokens, if their script has no spaces.
  void split_long(int64_t capacity) {
    split_words(Split::kUnspaced,
                [&](size_t word) { return !is_required(word) && size(word) > capacity && tokens(word) > capacity; });
  }

  /// Adds words from both sides in turn while they fit into `capacity` tokens. \return false if none was added
  bool grow(int64_t capacity) {
    const size_t before = last_ - first_;
    const auto fits = [&](size_t word) {
      const int64_t needed = tokens(word);
      if (needed > capacity) return false;
      capacity -= needed;
      return true;
    };
    for (bool left = true, right = true; left || right;) {
      if ((left = left && first_ > 0 && fits(first_ - 1))) --first_;
      if ((right = right && last_ + 1 < starts_.size() && fits(last_))) ++last_;
    }
    return last_ - first_ > before;
  }

  /// Removes the word farthest from the required words. \return false if only the required words are left.
  bool shrink() {
    if (last_ - required_last_ > required_first_ - first_)
      --last_;
    else if (first_ < required_first_)
      ++first_;
    else
      return false;
    return true;
  }

 private:
  void keep_required() {
    required_first_ = first_ = word_at(required_.begin);
    required_last_ = last_ = word_at(std::max(required_.end, required_.begin + 1) - 1) + 1;
  }

  template <typename Which>
  void split_words(Split split, const Which& is_one) {
    std::vector<size_t> starts;
    for (size_t word = 0; word + 1 < starts_.size(); ++word) {
      starts.push_back(starts_[word]);
      if (!is_one(word)) continue;
      const auto parts = part_starts(text_, starts_[word], starts_[word + 1], split);
      starts.insert(starts.end(), parts.begin() + 1, parts.end());
    }
    starts.push_back(text_.size());
    is_split_ = is_split_ || starts.size() > starts_.size();
    starts_ = std::move(starts);
    keep_required();
  }

  bool is_required(size_t word) const { return word >= required_first_ && word < required_last_; }
  int64_t size(size_t word) const { return static_cast<int64_t>(starts_[word + 1] - starts_[word]); }
  int64_t tokens(size_t word) const {
    const auto piece = text_.substr(starts_[word], starts_[word + 1] - starts_[word]);
    return static_cast<int64_t>(tokenizer_.encode(piece, /*add_special_tokens=*/false).size());
  }
  size_t word_at(size_t byte) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end() - 1, byte);
    return static_cast<size_t>(std::max<int64_t>(after - starts_.begin(), 1)) - 1;
  }

  std::string_view text_;
  KeptSpan required_;
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<size_t> starts_;
  size_t first_ = 0, last_ = 0, required_first_ = 0, required_last_ = 0;
  bool is_split_ = false;
};

}  // namespace

std::optional<std::string> context_window(std::string_view context, KeptSpan required, int64_t limit,
                                          const tokenizer::Tokenizer& tokenizer,
                                          const std::function<int64_t(std::string_view)>& tokens_with) {
  EK_CHECK(!context.empty(), kInternal, "a context window of an empty context");
  Window window(context, required, tokenizer);
  int64_t room = limit - tokens_with(window.text());
  for (const auto& [split, bytes] : {std::pair(Split::kUnspaced, int64_t{0}), {Split::kEverywhere, limit}}) {
    if (room >= 0) break;
    window.split_required(split, bytes);
    room = limit - tokens_with(window.text());
  }
  if (room < 0) return std::nullopt;
  window.split_long(room);
  while (window.grow(room) && window.is_split()) room = limit - tokens_with(window.text());
  while (tokens_with(window.text()) > limit)
    if (!window.shrink()) return std::nullopt;
  return std::string(window.text());
}

}  // namespace evenkeel::data
