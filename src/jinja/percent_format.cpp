#include "jinja/percent_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

/// The flags, width and precision between % and the conversion letter.
struct FormatSpec {
  bool left = false, plus = false, blank = false, zeros = false;
  size_t width = 0;
  int precision = -1;
  char letter = ' ';
};

class FormatReader {
 public:
  explicit FormatReader(std::string_view& rest) : rest_(rest) {}

  FormatSpec run() {
    FormatSpec spec;
    while (!rest_.empty() && flag(spec)) rest_.remove_prefix(1);
    spec.width = static_cast<size_t>(number());
    if (rest_.starts_with('.')) {
      rest_.remove_prefix(1);
      spec.precision = number();
    }
    EK_CHECK(!rest_.empty(), kData, "a format that ends behind a %");
    spec.letter = rest_.front();
    rest_.remove_prefix(1);
    return spec;
  }

 private:
  bool flag(FormatSpec& spec) const {
    const char c = rest_.front();
    bool* const known = c == '-'   ? &spec.left
                        : c == '+' ? &spec.plus
                        : c == ' ' ? &spec.blank
                        : c == '0' ? &spec.zeros
                                   : nullptr;
    if (known) *known = true;
    return known != nullptr;
  }

  int number() {
    int value = 0;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      value = value * 10 + (rest_.front() - '0');
      EK_CHECK(value <= 4096, kData, "a format's width or precision is above 4096");
      rest_.remove_prefix(1);
    }
    return value;
  }

  std::string_view& rest_;
};

std::string_view sign_of(const FormatSpec& spec, bool negative) {
  return negative ? "-" : spec.plus ? "+" : spec.blank ? " " : "";
}

/// Pads text to the width, without cutting it. Zeros are put between the sign and the digits.
std::string padded(const FormatSpec& spec, std::string_view sign, const std::string& body, bool zeros) {
  const size_t length = sign.size() + characters(body).size();
  const std::string gap(spec.width > length ? spec.width - length : 0, zeros && !spec.left ? '0' : ' ');
  if (spec.left) return concat(sign, body, gap);
  return zeros ? concat(sign, gap, body) : concat(gap, sign, body);
}

std::string text_part(const FormatSpec& spec, const Value& value, Budget& budget) {
  auto text = spec.letter == 'r' ? representation(value, budget) : printed(value, budget);
  const auto all = characters(text);
  if (spec.precision >= 0 && all.size() > static_cast<size_t>(spec.precision))
    text.resize(static_cast<size_t>(all[static_cast<size_t>(spec.precision)].data() - text.data()));
  return padded(spec, "", text, false);
}

std::string digits_of(uint64_t size, char letter) {
  std::array<char, 32> out{};
  const char* form = letter == 'x' ? "%lx" : letter == 'X' ? "%lX" : letter == 'o' ? "%lo" : "%lu";
  return {out.data(),
          static_cast<size_t>(std::snprintf(out.data(), out.size(), form, static_cast<unsigned long>(size)))};
}

std::string whole_part(const FormatSpec& spec, const Value& value) {
  const bool decimal = std::string_view("diu").find(spec.letter) != std::string_view::npos;
  EK_CHECK(value.is_integer() || (decimal && value.is_number() && std::abs(value.real()) < 9e18), kData, "%",
           spec.letter, " of ", value.kind());
  const int64_t number = value.is_integer() ? value.whole() : static_cast<int64_t>(value.real());
  const uint64_t size = number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  auto digits = digits_of(size, spec.letter);
  if (spec.precision > static_cast<int>(digits.size()))
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  return padded(spec, sign_of(spec, number < 0), digits, spec.zeros);
}

std::string real_part(const FormatSpec& spec, const Value& value) {
  EK_CHECK(value.is_number() && std::isfinite(value.real()), kData, "%", spec.letter, " of ", value.kind());
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const double size = std::abs(value.real());
  const std::array<char, 5> form = {'%', '.', '*', spec.letter, '\0'};
  std::string digits(static_cast<size_t>(precision) + 400, '\0');
  digits.resize(static_cast<size_t>(std::snprintf(digits.data(), digits.size(), form.data(), precision, size)));
  return padded(spec, sign_of(spec, std::signbit(value.real())), digits, spec.zeros);
}

std::string format_part(const FormatSpec& spec, const Value& value, Budget& budget) {
  const auto is_of = [&](std::string_view letters) { return letters.find(spec.letter) != letters.npos; };
  if (is_of("sr")) return text_part(spec, value, budget);
  if (is_of("diuxXo")) return whole_part(spec, value);
  EK_CHECK(is_of("eEfFgG"), kData, "the conversion %", std::string(1, spec.letter), " is not part of the subset");
  return real_part(spec, value);
}

}  // namespace

std::string percent_format(std::string_view form, const Value& values, Budget& budget) {
  EK_CHECK(!values.is_dict(), kData, "% of a text and a dict is not part of the subset");
  const bool many = values.is_tuple();
  const size_t count = many ? values.items().size() : 1;
  std::string out;
  size_t used = 0;
  for (auto at = form.find('%'); at != form.npos; at = form.find('%')) {
    out += form.substr(0, at);
    form.remove_prefix(at + 1);
    const auto spec = FormatReader(form).run();
    if (spec.letter == '%') {
      EK_CHECK(spec.width == 0 && spec.precision < 0, kData, "a %% with a width");
      out += '%';
      continue;
    }
    EK_CHECK(used < count, kData, "a format of more values than the ", count, " given");
    const auto part = format_part(spec, many ? values.items()[used] : values, budget);
    budget.charge_bytes(part.size() + 16);
    out += part;
    ++used;
  }
  EK_CHECK(used == count, kData, "a format of ", used, " values, given are ", count);
  return out += form;
}

}  // namespace evenkeel::jinja
