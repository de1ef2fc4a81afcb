#include "tokenizer/pattern_set.h"

#include <algorithm>
#include <vector>

#include "base/plain/error.h"
#include "tokenizer/character_classes.h"

namespace evenkeel::tokenizer {
namespace {

constexpr int kMostNestedSets = 100;

/// Parses a bracket expression and nested ones.
class SetReader {
 public:
  explicit SetReader(PatternCursor& cursor) : cursor_(cursor) {}

  /// Parses what follows [ or [^, including the closing bracket.
  CodeSet members(int depth) {
    if (depth > kMostNestedSets) cursor_.refuse("so deep a nesting of sets");
    if (cursor_.starts("]")) cursor_.refuse("a set that begins with ]");
    auto set = operand(depth);
    while (cursor_.take("&&")) set = set & operand(depth);
    if (!cursor_.take("]")) cursor_.refuse("a set without an end");
    return set;
  }

 private:
  /// Parses members up to && or the end.
  CodeSet operand(int depth) {
    std::vector<CodeRange> ranges;
    CodeSet classes;
    bool any = false;
    for (; !cursor_.done() && !cursor_.starts("]") && !cursor_.starts("&&"); any = true) {
      if (auto set = class_here(depth)) {
        classes = classes | *set;
        if (is_range()) cursor_.refuse("a range that begins with a set");
      } else {
        ranges.push_back(range(!any));
      }
    }
    if (!any) cursor_.refuse("an empty set");
    return classes | CodeSet(std::move(ranges));
  }

  std::optional<CodeSet> class_here(int depth) {
    if (cursor_.starts("[:")) return posix();
    if (cursor_.take("[^")) return members(depth + 1).complement();
    if (cursor_.take("[")) return members(depth + 1);
    if (!cursor_.take("\\")) return std::nullopt;
    if (auto set = cursor_.escaped_class()) return set;
    cursor_.go_back(1);
    return std::nullopt;
  }

  CodeSet posix() {
    const size_t close = cursor_.rest().find(":]");
    const auto name = cursor_.rest().substr(0, close).substr(2);
    const bool negated = name.starts_with('^');
    const auto set = posix_class(name.substr(negated ? 1 : 0));
    if (close == std::string_view::npos || !set) cursor_.refuse("such a bracket [:");
    cursor_.skip(close + 2);
    return negated ? set->complement() : *set;
  }

  /// Returns true if the next hyphen is between the two ends of a range.
  bool is_range() const { return cursor_.starts("-") && !cursor_.starts("-]") && !cursor_.starts("-&&"); }

  uint32_t end_of_range() {
    if (cursor_.take("\\")) return cursor_.take("b") ? '\b' : cursor_.escaped_code_point();
    if (cursor_.starts("[")) cursor_.refuse("a range that ends with a set");
    return cursor_.code_point();
  }

  CodeRange range(bool first_member) {
    const bool hyphen = cursor_.starts("-");
    if (hyphen && !first_member && is_range()) cursor_.refuse("a hyphen behind a range");
    const uint32_t first = end_of_range();
    if (!is_range()) return {first, first};
    cursor_.skip(1);
    const uint32_t last = end_of_range();
    if (last < first) cursor_.refuse("an empty range");
    return {first, last};
  }

  PatternCursor& cursor_;
};

}  // namespace

PatternSet read_set(PatternCursor& cursor) {
  const bool negated = cursor.take("^");
  return {SetReader(cursor).members(0), negated};
}

}  // namespace evenkeel::tokenizer
