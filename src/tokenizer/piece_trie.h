/// \file  Finds all pieces of a vocabulary that begin at a position of a text.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::tokenizer {

/// A trie over bytes. Immutable and thread-safe. Memory: at most 13 bytes per byte of the pieces.
class PieceTrie {
 public:
  /// \param pieces  the value of a piece is its index, of equal pieces the last one. An empty piece is never found.
  explicit PieceTrie(std::span<const std::string> pieces);

  /// Calls `use(length, index)` for each piece that `text` begins with, the shortest first. Cost: O(length of the
  /// longest one).
  template <typename Use>
  void find_prefixes(std::string_view text, Use&& use) const {
    uint32_t node = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) return;
      if (nodes_[node].piece >= 0) use(at + 1, nodes_[node].piece);
    }
  }

 private:
  /// The children of a node are neighbours, ordered by label. Node 0 is the root.
  struct Node {
    uint32_t first = 0;  ///< first child
    uint16_t count = 0;  ///< number of children
    int32_t piece = -1;
  };

  uint32_t child(uint32_t node, unsigned char label) const {
    if (node == 0) return of_root_[label];
    const unsigned char* first = labels_.data() + nodes_[node].first;
    const auto* found = static_cast<const unsigned char*>(std::memchr(first, label, nodes_[node].count));
    return found ? static_cast<uint32_t>(found - labels_.data()) : 0;
  }

  std::vector<Node> nodes_;
  std::vector<unsigned char> labels_;  ///< of each node
  std::array<uint32_t, 256> of_root_{};
};

}  // namespace evenkeel::tokenizer
