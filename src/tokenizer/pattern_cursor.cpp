#include "tokenizer/pattern_cursor.h"

#include <array>
#include <cctype>
#include <charconv>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/unicode/unicode.h"
#include "tokenizer/character_classes.h"

namespace evenkeel::tokenizer {
namespace {

struct Control {
  char letter;
  uint32_t code_point;
};
constexpr std::array kControls = {Control{'t', '\t'}, Control{'n', '\n'}, Control{'r', '\r'}, Control{'f', '\f'},
                                  Control{'v', '\v'}, Control{'a', '\a'}, Control{'e', 0x1B}};

constexpr std::string_view kMeaningful = "0123456789bBAzZGKkgXyYRNOcCMopPdDhHsSwWuUx";

bool is_hexadecimal(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

char small_letter(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

}  // namespace

void PatternCursor::refuse(std::string_view what) const {
  fail(kData, "pattern ", shown(pattern_), ": ", shown(what), " is not supported");
}

uint32_t PatternCursor::code_point() {
  if (done()) refuse("an end in the middle");
  const auto code = unicode::decode(pattern_.data() + at_);
  at_ += code.length;
  return code.value;
}

uint32_t PatternCursor::hexadecimal(size_t least, size_t most) {
  size_t length = 0;
  while (length < most && length < rest().size() && is_hexadecimal(rest()[length])) ++length;
  if (length < least) refuse("an escape with so few digits");
  uint32_t value = 0;
  std::from_chars(rest().data(), rest().data() + length, value, 16);
  skip(length);
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) refuse("such a code point");
  return value;
}

uint32_t PatternCursor::escaped_code_point() {
  const char c = peek();
  for (const auto& control : kControls)
    if (take(std::string_view(&control.letter, 1))) return control.code_point;
  if (take("x{")) {
    const uint32_t value = hexadecimal(1, 8);
    if (!take("}")) refuse("a list of code points");
    return value;
  }
  if (take("x")) {
    const uint32_t value = hexadecimal(1, 2);
    if (value >= 0x80) refuse("a byte of 80 or more");
    return value;
  }
  if (take("u")) return hexadecimal(4, 4);
  if (c != '\0' && kMeaningful.find(c) != std::string_view::npos && !(c == 'U'))
    if (!((c == 'p' || c == 'P') && !rest().substr(1).starts_with("{"))) refuse(concat("\\", rest().substr(0, 1)));
  return code_point();
}

CodeSet PatternCursor::property(bool negated) {
  const size_t close = rest().find('}');
  if (close == std::string_view::npos) refuse("a property without an end");
  auto name = rest().substr(0, close);
  if (name.starts_with('^')) {
    negated = !negated;
    name.remove_prefix(1);
  }
  const auto set = property_class(name);
  if (!set) refuse(concat("\\p{", name, "}"));
  skip(close + 1);
  return negated ? set->complement() : *set;
}

std::optional<CodeSet> PatternCursor::escaped_class() {
  if (take("p{")) return property(false);
  if (take("P{")) return property(true);
  const char c = peek(), letter = small_letter(c);
  if (c == '\0' || std::string_view("dhsw").find(letter) == std::string_view::npos) return std::nullopt;
  skip(1);
  const auto set = letter_class(letter);
  return c == letter ? set : set.complement();
}

}  // namespace evenkeel::tokenizer
