#include "tokenizer/pattern_set.h"

#include <algorithm>
#include <vector>

#include "base/plain/error.h"
#include "tokenizer/character_classes.h"

namespace evenkeel {
namespace {

using unicode::CodeRange;
using unicode::CodeSet;

constexpr int kMostNestedSets = 100;
constexpr uint32_t kLongS = 0x17F, kKelvin = 0x212A;  // fold to s and k

/// One bracket expression and those within it.
class SetReader {
 public:
  SetReader(PatternCursor& cursor, bool ignore_case) : cursor_(cursor), ignore_case_(ignore_case) {}

  CodeSet read(int depth) {
    if (depth > kMostNestedSets) cursor_.refuse("so deep a nesting of sets");
    const bool negated = cursor_.take("^");
    if (cursor_.starts("]")) cursor_.refuse("a set that begins with ]");
    auto set = operand(depth);
    while (cursor_.take("&&")) set = set & operand(depth);
    if (!cursor_.take("]")) cursor_.refuse("a set without an end");
    if (ignore_case_) set = with_other_cases(set, cursor_);
    return negated ? set.complement() : set;
  }

 private:
  /// Members up to && or the end.
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
    if (ignore_case_ && cursor_.starts("&&")) cursor_.refuse("&& under the option i");
    return classes | CodeSet(std::move(ranges));
  }

  std::optional<CodeSet> class_here(int depth) {
    if (cursor_.starts("[:")) return posix();
    if (cursor_.take("[")) {
      if (ignore_case_) cursor_.refuse("a set in a set under the option i");
      return read(depth + 1);
    }
    if (!cursor_.take("\\")) return std::nullopt;
    if (auto set = cursor_.escaped_class()) return set;
    cursor_.skip(-1);
    return std::nullopt;
  }

  CodeSet posix() {
    const size_t close = cursor_.rest().find(":]");
    const auto name = cursor_.rest().substr(0, close).substr(2);
    const bool negated = name.starts_with('^');
    const auto set = unicode::posix_class(name.substr(negated ? 1 : 0));
    if (close == std::string_view::npos || !set) cursor_.refuse("such a bracket [:");
    cursor_.skip(close + 2);
    return negated ? set->complement() : *set;
  }

  /// A hyphen here stands between two ends.
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
  bool ignore_case_;
};

bool is_ascii_letter(uint32_t c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

void add_cases_of_ascii(CodeRange range, std::vector<CodeRange>& out) {
  for (uint32_t c = range.first; c <= range.last && c < 0x80; ++c) {
    if (!is_ascii_letter(c)) continue;
    out.push_back({c ^ 0x20, c ^ 0x20});
    if ((c | 0x20) == 's') out.push_back({kLongS, kLongS});
    if ((c | 0x20) == 'k') out.push_back({kKelvin, kKelvin});
  }
}

}  // namespace

CodeSet read_set(PatternCursor& cursor, bool ignore_case) { return SetReader(cursor, ignore_case).read(0); }

CodeSet with_other_cases(const CodeSet& set, const PatternCursor& cursor) {
  auto ranges = set.ranges();
  for (const auto& range : set.ranges()) {
    add_cases_of_ascii(range, ranges);
    for (uint32_t c = std::max<uint32_t>(range.first, 0x80); c <= range.last; ++c)
      if (unicode::has_case(c)) cursor.refuse("a set with letters outside ASCII under the option i");
  }
  return CodeSet(std::move(ranges));
}

}  // namespace evenkeel
