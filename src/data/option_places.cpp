#include "data/option_places.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/unicode/unicode.h"

namespace evenkeel::data {
namespace {

struct Block {
  uint32_t first, last;
};

/// Scripts that put no spaces between words.
constexpr auto kUnspaced = std::to_array<Block>({
    {0x0E00, 0x0EFF},    // Thai, Lao
    {0x1000, 0x109F},    // Myanmar
    {0x1780, 0x17FF},    // Khmer
    {0x1950, 0x19DF},    // Tai Le, New Tai Lue
    {0x1A20, 0x1AAF},    // Tai Tham
    {0x1B00, 0x1B7F},    // Balinese
    {0x2E80, 0x2FDF},    // Han radicals
    {0x3005, 0x3007},    // Han: iteration mark, closing mark, zero
    {0x3021, 0x3029},    // Han: Hangzhou numerals
    {0x3038, 0x303B},    // Han: numerals, iteration mark
    {0x3041, 0x309F},    // Hiragana
    {0x3400, 0x4DBF},    // Han
    {0x4E00, 0x9FFF},    // Han
    {0xA980, 0xA9DF},    // Javanese
    {0xA9E0, 0xA9FF},    // Myanmar
    {0xAA60, 0xAA7F},    // Myanmar
    {0xAA80, 0xAADF},    // Tai Viet
    {0xF900, 0xFAFF},    // Han
    {0x11700, 0x1174F},  // Ahom
    {0x116D0, 0x116FF},  // Myanmar
    {0x1B001, 0x1B11F},  // Hiragana
    {0x20000, 0x2FA1F},  // Han
    {0x30000, 0x3347F},  // Han
});

constexpr auto kHangul = std::to_array<Block>(
    {{0x1100, 0x11FF}, {0x3131, 0x318E}, {0xA960, 0xA97F}, {0xAC00, 0xD7FF}, {0xFFA0, 0xFFDC}, {0x302E, 0x302F}});

bool is_in(std::span<const Block> blocks, uint32_t c) {
  return std::any_of(blocks.begin(), blocks.end(), [&](const Block& one) { return one.first <= c && c <= one.last; });
}

/// Returns whether the code point combines with the letter before it or joins it to the next one.
bool is_mark(uint32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME ||
         c == 0x200C || c == 0x200D;
}

bool is_of_word(uint32_t c) { return (unicode::flags()[c] & (unicode::kLetter | unicode::kNumber)) != 0 || is_mark(c); }

/// Returns true if there is no word boundary between two adjacent code points.
bool continues_word(uint32_t before, uint32_t after) {
  if (!is_of_word(before) || !is_of_word(after)) return false;
  return is_mark(after) || (!is_in(kUnspaced, before) && !is_in(kUnspaced, after));
}

/// Returns true at a word boundary. \param with_particles  true: Hangul may follow Hangul
bool ends_word(std::string_view text, size_t at, bool with_particles) {
  if (at == 0 || at == text.size()) return true;
  const uint32_t before = unicode::decode_before(text.data(), text.data() + at).value;
  const uint32_t after = unicode::decode(text.data() + at).value;
  return !continues_word(before, after) || (with_particles && is_in(kHangul, before) && is_in(kHangul, after));
}

/// Returns the first offset at which `option` is a whole word, not a part of a longer word or number.
size_t whole_hit(std::string_view text, std::string_view option, bool with_particles) {
  if (option.empty()) return text.npos;
  for (size_t at = text.find(option); at != text.npos; at = text.find(option, at + 1))
    if (ends_word(text, at, false) && ends_word(text, at + option.size(), with_particles)) return at;
  return text.npos;
}

std::optional<OptionPlace> leftmost(std::span<const std::string> options, std::string_view text, bool with_particles) {
  std::optional<OptionPlace> found;
  for (size_t i = 0; i < options.size(); ++i) {
    const size_t at = whole_hit(text, options[i], with_particles);
    if (at == text.npos) continue;
    const bool longer = found && at == found->at && options[i].size() > options[found->option].size();
    if (!found || at < found->at || longer) found = {i, at};
  }
  return found;
}

}  // namespace

std::optional<OptionPlace> first_option(std::span<const std::string> options, std::string_view text) {
  const bool is_text = unicode::find_invalid(text) == text.npos;
  const auto mended = is_text ? std::string() : unicode::replace_invalid(text);
  const auto whole = is_text ? text : std::string_view(mended);
  const auto found = leftmost(options, whole, /*with_particles=*/false);
  return found ? found : leftmost(options, whole, /*with_particles=*/true);
}

bool is_unspaced(uint32_t code_point) { return is_in(kUnspaced, code_point); }

std::string lower_case(std::string_view text) {
  const auto valid = unicode::replace_invalid(text);
  std::string lower;
  for (size_t at = 0; at < valid.size();) {
    const auto point = unicode::decode(valid.data() + at);
    at += point.length;
    unicode::append(lower, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))));
  }
  return lower;
}

}  // namespace evenkeel::data
