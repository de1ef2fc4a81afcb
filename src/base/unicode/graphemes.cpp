#include "base/unicode/graphemes.h"

#include <utf8proc.h>

#include <cstdint>
#include <vector>

#include "base/unicode/grapheme_tables.h"
#include "base/unicode/unicode.h"

namespace evenkeel::unicode {
namespace {

/// Grapheme break classes. Indic consonants and linkers, and the zero-width non-joiner, are apart from the classes that
/// Unicode counts them to.
enum Boundary : uint8_t {
  kOther,
  kCarriageReturn,
  kLineFeed,
  kControl,
  kExtend,
  kLinker,
  kNonJoiner,
  kJoiner,
  kRegional,
  kPrepend,
  kSpacingMark,
  kLead,
  kVowel,
  kTail,
  kLeadVowel,
  kLeadVowelTail,
  kPictograph,
  kConsonant
};

Boundary boundary_of(utf8proc_int32_t code_point) {
  switch (utf8proc_get_property(code_point)->boundclass) {
    case UTF8PROC_BOUNDCLASS_CR:
      return kCarriageReturn;
    case UTF8PROC_BOUNDCLASS_LF:
      return kLineFeed;
    case UTF8PROC_BOUNDCLASS_CONTROL:
      return kControl;
    case UTF8PROC_BOUNDCLASS_EXTEND:
      return kExtend;
    case UTF8PROC_BOUNDCLASS_L:
      return kLead;
    case UTF8PROC_BOUNDCLASS_V:
      return kVowel;
    case UTF8PROC_BOUNDCLASS_T:
      return kTail;
    case UTF8PROC_BOUNDCLASS_LV:
      return kLeadVowel;
    case UTF8PROC_BOUNDCLASS_LVT:
      return kLeadVowelTail;
    case UTF8PROC_BOUNDCLASS_REGIONAL_INDICATOR:
      return kRegional;
    case UTF8PROC_BOUNDCLASS_SPACINGMARK:
      return kSpacingMark;
    case UTF8PROC_BOUNDCLASS_PREPEND:
      return kPrepend;
    case UTF8PROC_BOUNDCLASS_ZWJ:
      return kJoiner;
    case UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC:
      return kPictograph;
    default:
      return kOther;
  }
}

template <typename Ranges>
void assign_boundary(std::vector<uint8_t>& table, const Ranges& ranges, Boundary value) {
  for (const auto& range : ranges)
    for (uint32_t c = range.first; c <= range.last; ++c) table[c] = value;
}

std::vector<uint8_t> boundaries_of_all() {
  std::vector<uint8_t> table(0x110000);
  for (uint32_t c = 0; c < table.size(); ++c) table[c] = boundary_of(static_cast<utf8proc_int32_t>(c));
  assign_boundary(table, kExtendSince16, kExtend);
  assign_boundary(table, kSpacingMarkSince16, kSpacingMark);
  assign_boundary(table, kPrependSince16, kPrepend);
  assign_boundary(table, kVowelSince16, kVowel);
  assign_boundary(table, kReservedControls, kControl);
  assign_boundary(table, kReservedPictographs, kPictograph);
  assign_boundary(table, kIndicConsonants, kConsonant);
  assign_boundary(table, kIndicLinkers, kLinker);
  table[0x200C] = kNonJoiner;
  return table;
}

const uint8_t* classes() {
  static const auto* const table = new std::vector<uint8_t>(boundaries_of_all());
  return table->data();
}

bool ends_cluster(uint8_t value) { return value == kCarriageReturn || value == kLineFeed || value == kControl; }
bool extends(uint8_t value) { return value == kExtend || value == kLinker || value == kNonJoiner; }

/// Returns true if the rules of Hangul syllables join two classes.
bool is_syllable(uint8_t before, uint8_t after) {
  switch (before) {
    case kLead:
      return after == kLead || after == kVowel || after == kLeadVowel || after == kLeadVowelTail;
    case kVowel:
    case kLeadVowel:
      return after == kVowel || after == kTail;
    case kTail:
    case kLeadVowelTail:
      return after == kTail;
    default:
      return false;
  }
}

/// What the rules need to know about a cluster that has begun.
struct Cluster {
  uint8_t last = kOther;       ///< class of the last code point
  bool pictograph = false;     ///< ends with a pictograph, Extend* and at most one joiner
  bool consonant = false;      ///< ends with a consonant and marks that keep a conjunct
  bool linked = false;         ///< there is a linker among these marks
  bool half_regional = false;  ///< ends with an odd number of regional indicators

  bool joins(uint8_t next) const {
    if (ends_cluster(last) || ends_cluster(next)) return last == kCarriageReturn && next == kLineFeed;
    if (extends(next) || next == kJoiner || next == kSpacingMark || last == kPrepend) return true;
    if (next == kConsonant) return linked;
    if (next == kPictograph) return pictograph && last == kJoiner;
    return is_syllable(last, next) || (next == kRegional && half_regional);
  }

  void add(uint8_t next) {
    pictograph = next == kPictograph || (pictograph && last != kJoiner && (extends(next) || next == kJoiner));
    consonant = next == kConsonant || (consonant && (next == kExtend || next == kLinker || next == kJoiner));
    linked = consonant && next != kConsonant && (linked || next == kLinker);
    half_regional = next == kRegional && !half_regional;
    last = next;
  }
};

}  // namespace

size_t grapheme_length(std::string_view text) {
  const auto is_plain = [&](size_t at) { return at == text.size() || (text[at] > '\r' && text[at] < 0x7F); };
  if (is_plain(0) && is_plain(1)) return 1;
  const uint8_t* table = classes();
  Cluster cluster;
  size_t at = 0;
  while (at < text.size()) {
    const auto code = decode(text.data() + at);
    if (at > 0 && !cluster.joins(table[code.value])) break;
    cluster.add(table[code.value]);
    at += code.length;
  }
  return at;
}

}  // namespace evenkeel::unicode
