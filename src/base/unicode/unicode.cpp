#include "base/unicode/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/unicode/unicode_tables.h"

namespace evenkeel::unicode {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr auto kCanonical = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
constexpr auto kCompatible = static_cast<utf8proc_option_t>(kCanonical | UTF8PROC_COMPAT);
constexpr auto kRecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

// Alphabetic code points that are not letters, marks or letter-like numbers: circled and squared Latin letters.
constexpr Range kAlphabeticSymbols[] = {{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

uint8_t class_of(int category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kWord;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      return kNumber | kWord;
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC:
      return kWord;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return kSpace;
    default:
      return 0;
  }
}

void mark(std::vector<uint8_t>& table, Range range, uint8_t bits) {
  for (uint32_t c = range.first; c <= range.last; ++c) table[c] |= bits;
}

/// A code point has up to 4 code points in canonical decomposition and up to 18 in compatibility decomposition.
using Parts = std::array<utf8proc_int32_t, 32>;

/// Writes the decomposition of `c` to `out`.
utf8proc_ssize_t decompose(uint32_t c, Parts& out, utf8proc_option_t form = kCanonical) {
  return utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out.data(), out.size(), form, nullptr);
}

bool is_young_compatibility(uint32_t c) {
  return std::any_of(std::begin(kCompatibilitySince9), std::end(kCompatibilitySince9),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

void mark_classes(std::vector<uint8_t>& table) {
  for (uint32_t c = 0; c < kCodePoints; ++c) {
    const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    table[c] = class_of(property->category) | (property->combining_class == 0 ? kComposed : 0);
  }
  for (const auto& range : kCategoriesSince15)
    for (uint32_t c = range.first; c <= range.last; ++c) table[c] = (table[c] & kComposed) | class_of(range.category);
  for (const auto range : {Range{0x09, 0x0D}, Range{0x85, 0x85}}) mark(table, range, kSpace);
  for (const auto& range : kAlphabeticSymbols) mark(table, range, kWord);
  mark(table, {0x200C, 0x200D}, kWord);
}

/// Clears kComposed for code points that decompose in NFC or that can be the second part of a composite.
void mark_composition(std::vector<uint8_t>& table) {
  Parts parts;
  for (uint32_t c = 0xA0; c < kCodePoints; ++c) {
    const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    if (property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) continue;
    const auto count = decompose(c, parts);
    for (int i = 1; i < count; ++i) table[static_cast<uint32_t>(parts[i])] &= ~kComposed;
    const auto composed = utf8proc_normalize_utf32(parts.data(), count, kRecompose);
    if (composed != 1 || parts[0] != static_cast<utf8proc_int32_t>(c)) table[c] &= ~kComposed;
  }
  for (uint32_t c = 0x1161; c <= 0x1175; ++c) table[c] &= ~kComposed;  // Hangul vowels and final consonants
  for (uint32_t c = 0x11A8; c <= 0x11C2; ++c) table[c] &= ~kComposed;
  for (const auto& range : kFrozenRanges) mark(table, range, kFrozen | kComposed);
}

std::vector<uint8_t> build() {
  std::vector<uint8_t> table(kCodePoints);
  mark_classes(table);
  mark_composition(table);
  return table;
}

/// Applies canonical order: marks between two starters are sorted stably by combining class.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  const auto rank = [](utf8proc_int32_t c) {
    return flags()[c] & kFrozen ? 0 : utf8proc_get_property(c)->combining_class;
  };
  for (size_t i = 0; i < text.size();) {
    if (rank(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && rank(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + i, text.begin() + end, [&](auto a, auto b) { return rank(a) < rank(b); });
    i = end;
  }
}

/// Decomposes and sorts. It does not use utf8proc's sorting, which is quadratic in a run of marks.
std::vector<utf8proc_int32_t> decomposed(std::string_view text, utf8proc_option_t form = kCanonical) {
  std::vector<utf8proc_int32_t> points;
  Parts parts;
  for (size_t at = 0; at < text.size();) {
    const auto code = decode(text.data() + at);
    parts[0] = static_cast<utf8proc_int32_t>(code.value);
    const bool stays = flags()[code.value] & kFrozen || (form == kCompatible && is_young_compatibility(code.value));
    const auto count = stays ? 1 : decompose(code.value, parts, form);
    points.insert(points.end(), parts.begin(), parts.begin() + count);
    at += code.length;
  }
  order_marks(points);
  return points;
}

/// Appends the NFC of one run.
void append_composed(std::string_view run, std::string& out) {
  auto points = decomposed(run);
  const auto size = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), kRecompose);
  for (int i = 0; i < size; ++i) append(out, static_cast<uint32_t>(points[i]));
}

/// Returns the first byte at or after `from` whose code point is not kComposed. Sets `before` to the code point before
/// it.
size_t find_uncomposed(std::string_view text, size_t from, size_t& before) {
  const auto* table = flags();
  before = from;
  for (size_t at = from; at < text.size();) {
    const auto code = decode(text.data() + at);
    if (!(table[code.value] & kComposed)) return at;
    before = at;
    at += code.length;
  }
  return std::string_view::npos;
}

/// Returns the end of the run of code points that are not kComposed.
size_t end_of_run(std::string_view text, size_t at) {
  const auto* table = flags();
  while (at < text.size()) {
    const auto code = decode(text.data() + at);
    if (table[code.value] & kComposed) break;
    at += code.length;
  }
  return at;
}

/// Code points that NFC may change start with a byte of 0xCC (U+0300) or above.
bool is_surely_composed(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

}  // namespace

const uint8_t* flags() {
  static const std::vector<uint8_t> table = build();
  return table.data();
}

CodePoint decode_before(const char* begin, const char* end) {
  const char* at = end - 1;
  while (at > begin && (static_cast<unsigned char>(*at) & 0xC0) == 0x80) --at;
  return decode(at);
}

void append(std::string& out, uint32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

namespace {

struct Sequence {
  size_t length;  ///< of the valid sequence, or of the maximal invalid part
  bool valid;
};

/// Implements table 3-7 of the Unicode standard: the bytes allowed after each lead byte.
Sequence sequence_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    const bool first = i == 1;
    if (at + i >= text.size()) return {i, false};
    if (byte(at + i) < (first ? low : 0x80) || byte(at + i) > (first ? high : 0xBF)) return {i, false};
  }
  return {length, true};
}

}  // namespace

size_t find_invalid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto sequence = sequence_at(text, at);
    if (!sequence.valid) return at;
    at += sequence.length;
  }
  return std::string_view::npos;
}

std::string replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto sequence = sequence_at(text, at);
    out += sequence.valid ? text.substr(at, sequence.length) : std::string_view("\xEF\xBF\xBD");
    at += sequence.length;
  }
  return out;
}

std::string_view nfc(std::string_view text, std::string& storage) {
  if (is_surely_composed(text)) return text;
  size_t before = 0;
  size_t found = find_uncomposed(text, 0, before);
  if (found == std::string_view::npos) return text;
  storage.clear();
  size_t copied = 0;
  for (; found != std::string_view::npos; found = find_uncomposed(text, copied, before)) {
    // A run composes with the preceding starter, unless the library does not know that starter or it is already
    // written.
    const bool joins = before < found && !(flags()[decode(text.data() + before).value] & kFrozen);
    const size_t start = joins ? before : found;
    storage += text.substr(copied, start - copied);
    copied = end_of_run(text, found);
    append_composed(text.substr(start, copied - start), storage);
  }
  storage += text.substr(copied);
  return storage;
}

namespace {

std::string_view written_out(std::string_view text, utf8proc_option_t form, std::string& storage) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return text;
  const auto points = decomposed(text, form);
  storage.clear();
  for (const auto point : points) append(storage, static_cast<uint32_t>(point));
  return storage;
}

}  // namespace

std::string_view nfd(std::string_view text, std::string& storage) { return written_out(text, kCanonical, storage); }

std::string_view nfkd(std::string_view text, std::string& storage) { return written_out(text, kCompatible, storage); }

std::string_view nfkc(std::string_view text, std::string& storage) {
  std::string decomposed_text;
  const auto decomposition = nfkd(text, decomposed_text);
  const auto composed = nfc(decomposition, storage);
  if (composed.data() == text.data() || composed.data() == storage.data()) return composed;
  storage = composed;
  return storage;
}

int category(uint32_t code_point) {
  const auto* after = std::upper_bound(std::begin(kCategoriesSince15), std::end(kCategoriesSince15), code_point,
                                       [](uint32_t c, const CategoryRange& r) { return c < r.first; });
  const bool recent = after != std::begin(kCategoriesSince15) && code_point <= std::prev(after)->last;
  return recent ? std::prev(after)->category : utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace evenkeel::unicode
