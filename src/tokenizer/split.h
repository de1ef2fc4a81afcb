/// \file  Pre-tokenises text: splits it into the words that the model encodes.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"
#include "base/unicode/unicode.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/pattern.h"

namespace evenkeel::tokenizer {

/// Returns the length in bytes of the first match of GPT-2's pattern at the start of `text`:
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// The pattern matches at every position, so repeated calls split a whole text in O(n). REQUIRES non-empty, valid
/// UTF-8.
size_t gpt2_word(std::string_view text);

/// The pre-tokenizer of a tokenizer.json: any number of Split, Digits, WhitespaceSplit and Metaspace, then at most
/// one ByteLevel.
/// Immutable and thread-safe.
class PreTokenizer {
 public:
  PreTokenizer() = default;  ///< does not split
  /// Reads a pre-tokenizer. \throws kData with the position of an unsupported kind, key or pattern.
  explicit PreTokenizer(const JsonView& json);

  /// Calls `use(word)` for each word of `text`, in order. The words are valid during the call only. \param first  true
  /// if `text` begins the whole text (Metaspace with prepend_scheme "first" depends on it).
  template <typename Use>
  void split(std::string_view text, bool first, Use&& use) const {
    if (steps_.empty()) return finish(text, use);
    std::deque<std::string> written;
    for (const auto piece : run_steps(text, first, written)) finish(piece, use);
  }

  /// Returns true if the last step is ByteLevel.
  bool has_byte_level() const { return has_byte_level_; }
  /// Returns true if the words depend on the argument `first` of split().
  bool asks_for_first() const { return asks_for_first_; }

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Step {
    std::optional<SplitPattern> pattern;
    Behavior behavior;
    bool invert;
    std::optional<Metaspace> metaspace{};  ///< if set, used instead of a pattern
  };

  void add(const JsonView& json);
  void add_byte_level(const JsonView& json);
  void add_split(const JsonView& json);
  void add_digits(const JsonView& json);
  void add_metaspace(const JsonView& json);
  static Behavior behavior_of(const JsonView& json);
  static std::vector<TextSpan> joined(const std::vector<TextSpan>& spans, Behavior behavior);
  static void apply(const Step& step, std::string_view text, std::vector<std::string_view>& out);
  std::vector<std::string_view> run_steps(std::string_view text, bool first, std::deque<std::string>& written) const;

  template <typename Use>
  void finish(std::string_view text, Use&& use) const {
    if (!add_prefix_space_ || text.starts_with(' ')) return words(text, use);
    std::string prefixed;
    prefixed.reserve(text.size() + 1);
    prefixed.append(1, ' ').append(text);
    words(prefixed, use);
  }

  template <typename Use>
  void words(std::string_view text, Use&& use) const {
    if (!has_byte_level_ || !use_regex_) return use(text);
    while (!text.empty()) {
      const size_t length = gpt2_word(text);
      use(text.substr(0, length));
      text.remove_prefix(length);
    }
  }

  std::vector<Step> steps_;
  bool has_byte_level_ = false, add_prefix_space_ = false, use_regex_ = true, asks_for_first_ = false;
};

}  // namespace evenkeel::tokenizer
