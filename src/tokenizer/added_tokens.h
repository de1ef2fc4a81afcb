/// \file  Splits added tokens off the text before it is normalised and pre-tokenised, as the `tokenizers` library does.
/// The leftmost match wins, and at the same position the longest.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evenkeel::tokenizer {

/// An added token with the flags of the `tokenizers` library.
struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool single_word = false;  ///< matches only if no word character is adjacent
  bool lstrip = false;       ///< includes the white space before it
  bool rstrip = false;       ///< includes the white space after it
  bool normalized = true;    ///< matched in the normalised text
  bool special = false;      ///< skipped when decoding with skip_special_tokens
  bool is_text = false;      ///< true: encoded like other text (split_special_tokens)
  bool by_class = false;     ///< true: added by the tokenizer's class; no file names it
};

/// Finds added tokens in texts. Thread-safe after the last add().
class AddedTokenMatcher {
 public:
  /// Adds a token. \param pattern  text to find: the content, normalised if token.normalized is set. If two tokens have
  /// equal patterns, the first is kept.
  void add(std::string_view pattern, const AddedToken& token);
  /// Returns true if no token was added.
  bool empty() const { return nodes_.size() == 1; }

  /// A part of a text: a token (id >= 0), or text between tokens (id < 0).
  struct Piece {
    std::string_view text;
    int64_t id;
  };

  /// Appends the pieces of `text` to `out`, in order; none is empty. The pieces are views into `text`. Cost: one
  /// look-up per byte, plus at most the length of the longest token at each possible start. REQUIRES valid UTF-8.
  void split(std::string_view text, std::vector<Piece>& out) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> next;
    int32_t token = -1;
  };
  struct Flags {
    int64_t id;
    bool single_word, lstrip, rstrip, is_text;
  };
  struct Match {
    size_t begin, end;
    int32_t token = -1;
  };

  int32_t child(int32_t node, char byte) const;
  Match find(std::string_view text, size_t from) const;
  Match longest_at(std::string_view text, size_t begin) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<Flags> tokens_;
  std::bitset<1 << 16> starts_;  ///< first two bytes of the patterns, to skip most positions quickly
};

}  // namespace evenkeel::tokenizer
