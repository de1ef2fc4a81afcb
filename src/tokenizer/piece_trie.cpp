#include "tokenizer/piece_trie.h"

#include <algorithm>
#include <numeric>

namespace evenkeel::tokenizer {
namespace {

/// A node whose children are not made yet: pieces [begin, end) of the sorted list share its first `depth` bytes.
struct Open {
  size_t begin, end, depth;
};

}  // namespace

PieceTrie::PieceTrie(std::span<const std::string> pieces) {
  std::vector<int32_t> sorted(pieces.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
    const int order = pieces[a].compare(pieces[b]);
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<Open> open = {{0, sorted.size(), 0}};
  nodes_.emplace_back();
  labels_.push_back(0);
  for (uint32_t node = 0; node < nodes_.size(); ++node) {  // breadth first, so that children are neighbours
    auto [begin, end, depth] = open[node];
    while (begin < end && pieces[sorted[begin]].size() == depth) nodes_[node].piece = sorted[begin++];
    nodes_[node].first = static_cast<uint32_t>(nodes_.size());
    for (size_t next; begin < end; begin = next) {
      const char label = pieces[sorted[begin]][depth];
      for (next = begin + 1; next < end && pieces[sorted[next]][depth] == label;) ++next;
      ++nodes_[node].count;
      nodes_.emplace_back();
      labels_.push_back(static_cast<unsigned char>(label));
      open.push_back({begin, next, depth + 1});
    }
  }
  for (uint32_t k = 0; k < nodes_[0].count; ++k) of_root_[labels_[nodes_[0].first + k]] = nodes_[0].first + k;
}

}  // namespace evenkeel::tokenizer
