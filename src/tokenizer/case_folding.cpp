#include "tokenizer/case_folding.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/unicode/unicode_tables.h"

namespace evenkeel::tokenizer {
namespace {

using Folded = std::vector<uint32_t>;

Folded fold(uint32_t code_point) {
  for (const auto& range : unicode::kFoldedSince15)
    if (code_point >= range.first && code_point <= range.last) return {code_point - range.first + range.folded};
  std::array<utf8proc_int32_t, 8> folded;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), folded.data(), folded.size(),
                                             UTF8PROC_CASEFOLD, nullptr);
  return count < 1 ? Folded{code_point} : Folded(folded.begin(), folded.begin() + count);
}

/// Maps each case folding to the characters that have it, except a character that is its own folding.
using Foldings = std::map<Folded, std::vector<uint32_t>>;

const Foldings& foldings() {
  static const Foldings built = [] {
    Foldings out;
    const auto everything = CodeSet::all();
    for (const auto& range : everything.ranges())
      for (uint32_t c = range.first; c <= range.last; ++c)
        if (auto folded = fold(c); folded != Folded{c}) out[std::move(folded)].push_back(c);
    return out;
  }();
  return built;
}

constexpr size_t kLongestFolding = 3;  // characters

/// Returns the foldings of all codes, or nothing if one of them has a folding of several characters.
Folded folded_one_by_one(std::span<const uint32_t> codes) {
  Folded all;
  for (const uint32_t code : codes) {
    const auto folded = fold(code);
    if (folded.size() != 1) return {};
    all.push_back(folded[0]);
  }
  return all;
}

bool any_in(const CodeSet& set, const std::vector<uint32_t>& codes) {
  return std::any_of(codes.begin(), codes.end(), [&](uint32_t c) { return set.contains(c); });
}

}  // namespace

CodeSet with_all_cases(const CodeSet& set) {
  auto ranges = set.ranges();
  for (const auto& [folded, codes] : foldings()) {
    const bool one = folded.size() == 1;
    if (!any_in(set, codes) && !(one && set.contains(folded[0]))) continue;
    for (const uint32_t c : codes) ranges.push_back({c, c});
    if (one) ranges.push_back({folded[0], folded[0]});
  }
  return CodeSet(std::move(ranges));
}

std::vector<std::vector<CodeSet>> folded_sequences(const CodeSet& set) {
  std::vector<std::vector<CodeSet>> out;
  for (const auto& [folded, codes] : foldings()) {
    if (folded.size() == 1 || !any_in(set, codes)) continue;
    auto& sequence = out.emplace_back();
    for (const uint32_t c : folded) sequence.push_back(with_all_cases(CodeSet::of(c, c)));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return out;
}

size_t folded_together(std::span<const uint32_t> codes) {
  for (size_t count = std::min(kLongestFolding, codes.size()); count > 1; --count)
    if (foldings().contains(folded_one_by_one(codes.first(count)))) return count;
  return 1;
}

CodeSet characters_of(std::span<const uint32_t> codes) {
  std::vector<CodeRange> ranges;
  for (const uint32_t c : foldings().at(folded_one_by_one(codes))) ranges.push_back({c, c});
  return CodeSet(std::move(ranges));
}

bool begin_a_folding(std::span<const uint32_t> codes) {
  const auto folded = folded_one_by_one(codes);
  const auto found = foldings().lower_bound(folded);
  return !folded.empty() && found != foldings().end() && found->first.size() >= folded.size() &&
         std::equal(folded.begin(), folded.end(), found->first.begin());
}

}  // namespace evenkeel::tokenizer
