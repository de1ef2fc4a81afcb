// Writes JSON as Python's json module does.
#include <algorithm>
#include <cmath>

#include "base/plain/error.h"
#include "base/unicode/unicode.h"
#include "jinja/budget.h"
#include "jinja/text_functions.h"
#include "jinja/value.h"

namespace evenkeel::jinja {
namespace {

std::string unit_escape(uint32_t unit) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[unit >> shift & 15];
  return out;
}

/// Escapes a character beyond ASCII as one or two UTF-16 units.
std::string ascii_escape(uint32_t point) {
  if (point < 0x10000) return unit_escape(point);
  return unit_escape(0xD800 + ((point - 0x10000) >> 10)) + unit_escape(0xDC00 + (point & 0x3FF));
}

std::string json_character(std::string_view one, bool ascii) {
  const auto byte = static_cast<unsigned char>(one.front());
  constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  if (const auto at = kNamed.find(one.front()); at != kNamed.npos) return {'\\', kLetters[at]};
  if (byte < 0x20) return unit_escape(byte);
  return ascii && byte >= 0x7f ? ascii_escape(unicode::decode(one.data()).value) : std::string(one);
}

std::string json_string(const std::string& text, bool ascii) {
  std::string out = "\"";
  for (const auto one : characters(text)) out += json_character(one, ascii);
  return out + "\"";
}

std::string json_float(double number, Budget& budget) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return printed(Value(Value::Held(number)), budget);
}

/// Writes a value that is neither string, list nor dict.
std::string json_scalar(const Value& value, Budget& budget) {
  if (value.is<None>()) return "null";
  if (const bool* flag = value.as<bool>()) return *flag ? "true" : "false";
  if (const auto* number = value.as<double>()) return json_float(*number, budget);
  EK_CHECK(value.is_integer(), kData, "tojson of ", value.kind());
  return printed(value, budget);
}

/// Writes a value. Each value and the text are charged as they are written.
class JsonWriter {
 public:
  JsonWriter(const JsonForm& form, Budget& budget) : form_(form), budget_(budget) {}

  void write(const Value& value) {
    if (value.is_string() || value.is<SafeText>())
      add(json_string(printed(value, budget_), form_.ascii));
    else if (value.is_list_or_tuple())
      write_all(value.items(), '[', ']', [&](const Value& item) { write(item); });
    else if (value.is_dict())
      write_dict(value.entries());
    else
      out += json_scalar(value, budget_);
  }
  std::string out;

 private:
  void write_dict(const Dict& dict) {
    auto entries = dict.entries;
    if (form_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](auto& x, auto& y) { return less(x.first, y.first, budget_); });
    write_all(entries, '{', '}', [&](const auto& entry) {
      EK_CHECK(!entry.first.is_tuple(), kData, "tojson of a dict with a tuple as key");
      add(json_string(entry.first.is_string() ? entry.first.text() : json_scalar(entry.first, budget_), form_.ascii));
      add(form_.colon);
      write(entry.second);
    });
  }

  template <typename Entries, typename Write>
  void write_all(const Entries& entries, char open, char close, Write&& write_one) {
    budget_.charge(entries.size());
    out += open;
    ++level_;
    bool first = true;
    for (const auto& entry : entries) {
      if (!std::exchange(first, false)) add(form_.between);
      new_line();
      write_one(entry);
    }
    --level_;
    if (!entries.empty()) new_line();
    out += close;
  }

  void new_line() {
    if (!form_.indent) return;
    budget_.charge_bytes(level_ * form_.indent->size());
    out += '\n';
    for (size_t i = 0; i < level_; ++i) out += *form_.indent;
  }

  void add(const std::string& text) {
    budget_.charge_bytes(text.size());
    out += text;
  }

  const JsonForm& form_;
  Budget& budget_;
  size_t level_ = 0;
};

}  // namespace

std::string json_text(const Value& value, const JsonForm& form, Budget& budget) {
  JsonWriter writer(form, budget);
  writer.write(value);
  return std::move(writer.out);
}

}  // namespace evenkeel::jinja
