#include "tokenizer/code_set.h"

#include <algorithm>
#include <utility>

namespace evenkeel::tokenizer {
namespace {

constexpr uint32_t kLastCodePoint = 0x10FFFF;
constexpr CodeRange kBelowSurrogates{0, 0xD7FF}, kAboveSurrogates{0xE000, kLastCodePoint};

/// Appends the intersections of sorted `ranges` with `bounds`. Adjacent ranges are joined.
void append_clipped(const std::vector<CodeRange>& ranges, CodeRange bounds, std::vector<CodeRange>& out) {
  const size_t begin = out.size();
  for (const auto& range : ranges) {
    const CodeRange part{std::max(range.first, bounds.first), std::min(range.last, bounds.last)};
    if (part.first > part.last) continue;
    if (out.size() > begin && part.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, part.last);
    else
      out.push_back(part);
  }
}

}  // namespace

CodeSet::CodeSet(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](CodeRange a, CodeRange b) { return a.first < b.first; });
  append_clipped(ranges, kBelowSurrogates, ranges_);
  append_clipped(ranges, kAboveSurrogates, ranges_);
}

CodeSet CodeSet::all() { return of(0, kLastCodePoint); }

bool CodeSet::contains(uint32_t code_point) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                                      [](uint32_t c, CodeRange range) { return c < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

bool CodeSet::includes(const CodeSet& other) const { return (other & *this) == other; }

CodeSet CodeSet::complement() const {
  std::vector<CodeRange> out;
  uint32_t next = 0;
  for (const auto& range : ranges_) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.push_back({next, kLastCodePoint});
  return CodeSet(std::move(out));
}

CodeSet operator|(const CodeSet& a, const CodeSet& b) {
  auto ranges = a.ranges_;
  ranges.insert(ranges.end(), b.ranges_.begin(), b.ranges_.end());
  return CodeSet(std::move(ranges));
}

CodeSet operator&(const CodeSet& a, const CodeSet& b) {
  CodeSet out;
  for (auto left = a.ranges_.begin(), right = b.ranges_.begin(); left != a.ranges_.end() && right != b.ranges_.end();) {
    const CodeRange both{std::max(left->first, right->first), std::min(left->last, right->last)};
    if (both.first <= both.last) out.ranges_.push_back(both);
    left->last < right->last ? ++left : ++right;
  }
  return out;
}

bool operator==(const CodeSet& a, const CodeSet& b) {
  return std::equal(a.ranges_.begin(), a.ranges_.end(), b.ranges_.begin(), b.ranges_.end(),
                    [](CodeRange x, CodeRange y) { return x.first == y.first && x.last == y.last; });
}

}  // namespace evenkeel::tokenizer
