#include "data/context_window.h"

#include <algorithm>
#include <vector>

#include "base/plain/error.h"

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

/// A range of words [first, last) that grows and shrinks around the required words.
class Window {
 public:
  Window(std::string_view text, KeptSpan required) : text_(text), starts_(word_starts(text)) {
    required_first_ = first_ = word_at(required.begin);
    required_last_ = last_ = word_at(std::max(required.end, required.begin + 1) - 1) + 1;
  }

  std::string_view text() const {
    const auto run = text_.substr(starts_[first_], starts_[last_] - starts_[first_]);
    return run.substr(std::min(run.find_first_not_of(kBlank), run.size()));
  }

  /// Adds words from both sides in turn while they fit into `capacity` tokens.
  void grow(const tokenizer::Tokenizer& tokenizer, int64_t capacity) {
    const auto fits = [&](size_t word) {
      const auto piece = text_.substr(starts_[word], starts_[word + 1] - starts_[word]);
      const auto tokens = static_cast<int64_t>(tokenizer.encode(piece, /*add_special_tokens=*/false).size());
      if (tokens > capacity) return false;
      capacity -= tokens;
      return true;
    };
    for (bool left = true, right = true; left || right;) {
      if ((left = left && first_ > 0 && fits(first_ - 1))) --first_;
      if ((right = right && last_ + 1 < starts_.size() && fits(last_))) ++last_;
    }
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
  size_t word_at(size_t byte) const {
    const auto after = std::upper_bound(starts_.begin(), starts_.end() - 1, byte);
    return static_cast<size_t>(std::max<int64_t>(after - starts_.begin(), 1)) - 1;
  }

  std::string_view text_;
  std::vector<size_t> starts_;
  size_t first_ = 0, last_ = 0, required_first_ = 0, required_last_ = 0;
};

}  // namespace

std::optional<std::string> context_window(std::string_view context, KeptSpan required, int64_t limit,
                                          const tokenizer::Tokenizer& tokenizer,
                                          const std::function<int64_t(std::string_view)>& tokens_with) {
  EK_CHECK(!context.empty(), kInternal, "a context window of an empty context");
  Window window(context, required);
  window.grow(tokenizer, limit - tokens_with(window.text()));
  while (tokens_with(window.text()) > limit)
    if (!window.shrink()) return std::nullopt;
  return std::string(window.text());
}

}  // namespace evenkeel::data
