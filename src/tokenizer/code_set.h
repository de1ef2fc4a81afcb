/// \file  Represents sets of Unicode code points as sorted ranges. No set contains surrogates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel::tokenizer {

/// A range of code points.
struct CodeRange {
  uint32_t first, last;  ///< both included
};

/// An immutable set of code points.
class CodeSet {
 public:
  CodeSet() = default;
  /// Creates the union of ranges. \param ranges  in any order, may overlap; surrogates are removed
  explicit CodeSet(std::vector<CodeRange> ranges);
  /// Returns the set of first .. last.
  static CodeSet of(uint32_t first, uint32_t last) { return CodeSet({{first, last}}); }
  /// Returns the set of all code points.
  static CodeSet all();

  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(uint32_t code_point) const;
  /// Returns true if `other` is a subset.
  bool includes(const CodeSet& other) const;

  // The following operations cost O(ranges).
  CodeSet complement() const;
  friend CodeSet operator|(const CodeSet& a, const CodeSet& b);
  friend CodeSet operator&(const CodeSet& a, const CodeSet& b);
  friend CodeSet operator-(const CodeSet& a, const CodeSet& b) { return a & b.complement(); }
  friend bool operator==(const CodeSet& a, const CodeSet& b);

 private:
  std::vector<CodeRange> ranges_;  ///< ascending, not adjacent
};

}  // namespace evenkeel::tokenizer
