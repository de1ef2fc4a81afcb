#include "tokenizer/bert.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "tokenizer/bert_tables.h"

namespace evenkeel::tokenizer {
namespace {

using unicode::Range;

constexpr uint32_t kCodePoints = 0x110000;
constexpr uint32_t kDottedCapitalI = 0x130, kDotAbove = 0x307;

bool is_white(uint32_t c) { return (unicode::flags()[c] & unicode::kSpace) != 0; }

uint8_t class_of(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
      return kBertRemoved;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kBertPunctuation;
    case UTF8PROC_CATEGORY_MN:
      return kBertMark;
    default:
      return 0;
  }
}

template <size_t kCount>
void mark(std::vector<uint8_t>& table, const unicode::Range (&ranges)[kCount], uint8_t bits) {
  for (const auto& range : ranges)
    for (uint32_t c = range.first; c <= range.last; ++c) table[c] |= bits;
}

std::vector<uint8_t> build() {
  std::vector<uint8_t> table(kCodePoints);
  for (uint32_t c = 0; c < kCodePoints; ++c) table[c] = class_of(c);
  for (const auto& range : unicode::kCategoriesSince15)
    for (uint32_t c = range.first; c <= range.last; ++c) table[c] = 0;
  for (const auto& range : kBertUnclassed)
    for (uint32_t c = range.first; c <= range.last; ++c) table[c] = 0;
  mark(table, kAsciiSymbols, kBertPunctuation);
  mark(table, kOldPunctuation, kBertPunctuation);
  mark(table, kOldMarks, kBertMark);
  mark(table, kReplacement, kBertRemoved);
  mark(table, kIdeographs, kBertIdeograph);
  for (uint32_t c = 0; c < kCodePoints; ++c)
    if (is_white(c)) table[c] |= kBertSpace;
  for (const uint32_t c : {'\t', '\n', '\r'}) table[c] = kBertSpace;
  return table;
}

std::string cleaned(std::string_view text, const BertNormalizer& settings) {
  const uint8_t* flags = bert_flags();
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto code = unicode::decode(text.data() + at);
    const uint8_t kind = flags[code.value];
    const auto character = text.substr(at, code.length);
    at += code.length;
    if (settings.clean_text && (kind & kBertRemoved)) continue;
    if (settings.clean_text && (kind & kBertSpace))
      out += ' ';
    else if (settings.handle_chinese_chars && (kind & kBertIdeograph))
      out.append(1, ' ').append(character).append(1, ' ');
    else
      out += character;
  }
  return out;
}

std::string without_marks(std::string_view text) {
  std::string storage, out;
  const auto decomposed = unicode::nfd(text, storage);
  out.reserve(decomposed.size());
  for (size_t at = 0; at < decomposed.size();) {
    const auto code = unicode::decode(decomposed.data() + at);
    if (!(bert_flags()[code.value] & kBertMark)) out += decomposed.substr(at, code.length);
    at += code.length;
  }
  return out;
}

uint32_t lower(uint32_t c) {
  const auto* range = std::upper_bound(std::begin(kLowerSince15), std::end(kLowerSince15), c,
                                       [](uint32_t value, const LowerRange& r) { return value < r.first; });
  if (range != std::begin(kLowerSince15) && c <= std::prev(range)->last)
    return c - std::prev(range)->first + std::prev(range)->lower;
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace

const uint8_t* bert_flags() {
  static const std::vector<uint8_t> table = build();
  return table.data();
}

std::string lowered(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto code = unicode::decode(text.data() + at);
    unicode::append(out, code.value == kDottedCapitalI ? 'i' : lower(code.value));
    if (code.value == kDottedCapitalI) unicode::append(out, kDotAbove);
    at += code.length;
  }
  return out;
}

std::string_view BertNormalizer::normalized(std::string_view text, std::string& storage) const {
  storage = cleaned(text, *this);
  if (strip_accents.value_or(lowercase)) storage = without_marks(storage);
  if (lowercase) storage = lowered(storage);
  return storage;
}

}  // namespace evenkeel::tokenizer
