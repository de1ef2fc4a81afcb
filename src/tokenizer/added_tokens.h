/// \file  Added tokens: cut out of the text before anything else sees it, leftmost first and longest first, as the
/// `tokenizers` library does, with its flags.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evenkeel {

struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool single_word = false;  ///< only where neither neighbour is a word character
  bool lstrip = false;       ///< takes the whitespace before it along
  bool rstrip = false;       ///< takes the whitespace after it along
  bool normalized = true;    ///< looked for in the normalised text
  bool special = false;      ///< left out by a decode that skips special tokens
  bool is_text = false;      ///< cut like other text where it stands
  bool by_class = false;     ///< no file names it: the tokenizer's class adds it
};

/// Finds a set of added tokens in texts.
class AddedTokenMatcher {
 public:
  /// `pattern` is what to look for: the content, normalised when the token is. Of two equal patterns the first counts.
  void add(std::string_view pattern, const AddedToken& token);
  bool empty() const { return nodes_.size() == 1; }

  /// A token (id >= 0) or a stretch of other text (id < 0).
  struct Piece {
    std::string_view text;
    int64_t id;
  };

  /// Pieces of `text` in order, none empty; appended to `out`. Cost: one look-up per byte; where a token may begin, at
  /// most the length of the longest token. REQUIRES valid UTF-8.
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
  std::bitset<1 << 16> starts_;  ///< the first two bytes of the patterns: most positions end here
};

}  // namespace evenkeel
