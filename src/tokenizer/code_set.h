/// \file  Sets of Unicode code points as sorted ranges. Surrogates belong to no set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel::unicode {

struct CodeRange {
  uint32_t first, last;  ///< both inside
};

class CodeSet {
 public:
  CodeSet() = default;
  /// \param ranges  in any order, overlaps allowed; surrogates are left out
  explicit CodeSet(std::vector<CodeRange> ranges);
  static CodeSet of(uint32_t first, uint32_t last) { return CodeSet({{first, last}}); }
  static CodeSet all();

  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(uint32_t code_point) const;
  bool includes(const CodeSet& other) const;

  // Each costs O(ranges).
  CodeSet complement() const;
  friend CodeSet operator|(const CodeSet& a, const CodeSet& b);
  friend CodeSet operator&(const CodeSet& a, const CodeSet& b);
  friend CodeSet operator-(const CodeSet& a, const CodeSet& b) { return a & b.complement(); }
  friend bool operator==(const CodeSet& a, const CodeSet& b);

 private:
  std::vector<CodeRange> ranges_;  ///< ascending, with gaps between them
};

}  // namespace evenkeel::unicode
