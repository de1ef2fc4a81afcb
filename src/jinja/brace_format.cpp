#include "jinja/brace_format.h"

#include <algorithm>
#include <cctype>

#include "jinja/percent_format.h"
#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

constexpr size_t kMostWidth = 4096;

[[noreturn]] void refuse_field(std::string_view field) {
  fail(kData, "the field {", field, "} of format is not part of the subset");
}

bool are_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Takes the digits at the front of `rest`.
std::string take_digits(std::string_view& rest) {
  const size_t count = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const std::string digits(rest.substr(0, count));
  rest.remove_prefix(count);
  return digits;
}

/// The format specification of a field, after its colon.
struct FieldFormat {
  std::string fill = " ", sign, width, precision;  ///< digits of width and precision; precision with its dot
  char align = '\0', type = '\0';
  bool zeros = false;
};

FieldFormat read_format(std::string_view rest, std::string_view field) {
  FieldFormat out;
  const auto all = characters(rest);
  const auto is_align = [](std::string_view c) { return c == "<" || c == ">" || c == "^"; };
  const size_t marks = all.size() > 1 && is_align(all[1]) ? 2 : !all.empty() && is_align(all[0]) ? 1 : 0;
  if (marks == 2) out.fill = all[0];
  if (marks > 0) out.align = all[marks - 1][0];
  for (size_t i = 0; i < marks; ++i) rest.remove_prefix(all[i].size());
  if (rest.starts_with('+') || rest.starts_with('-') || rest.starts_with(' ')) {
    out.sign = rest[0] == '-' ? "" : std::string(1, rest[0]);
    rest.remove_prefix(1);
  }
  out.zeros = rest.starts_with('0');
  out.width = take_digits(rest);
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    out.precision = concat(".", take_digits(rest));
    if (out.precision.size() == 1) refuse_field(field);
  }
  if (rest.size() > 1) refuse_field(field);
  if (!rest.empty()) out.type = rest[0];
  return out;
}

/// Puts the fill around a text that is narrower than the field.
std::string aligned(const std::string& text, const FieldFormat& format, char align) {
  const size_t length = characters(text).size();
  const size_t width = format.width.empty() ? 0 : std::stoul(format.width);
  const size_t gap = width > length ? width - length : 0, before = align == '<' ? 0 : align == '^' ? gap / 2 : gap;
  std::string out;
  for (size_t i = 0; i < before; ++i) out += format.fill;
  out += text;
  for (size_t i = before; i < gap; ++i) out += format.fill;
  return out;
}

/// Formats numbers and texts with a specification as % does, apart from the alignment.
std::string formatted_value(const Value& value, const FieldFormat& format, std::string_view field, Budget& budget) {
  const bool text = value.is_string(), whole = value.is_integer();
  const char type = format.type != '\0' ? format.type : text ? 's' : whole ? 'd' : 'r';
  const std::string_view types = text ? "s" : whole ? "dxXoeEfFgG" : value.is_number() ? "eEfFgGr" : "";
  const bool is_whole = std::string_view("dxXo").find(type) != std::string_view::npos;
  const bool plain = text || type == 'r';
  if (types.find(type) == types.npos || (format.type == 'r') || (is_whole && !format.precision.empty()) ||
      (plain && (format.zeros || !format.sign.empty())) || (type == 'r' && !format.precision.empty()) ||
      value.is<bool>())
    refuse_field(field);
  const bool zeros = format.zeros && format.align == '\0';
  if (format.zeros && !zeros) refuse_field(field);
  const auto form = concat("%", format.sign, zeros ? format.width : "", format.precision, std::string(1, type));
  const auto made = percent_format(form, Value::list({value}, SequenceType::kTuple), budget);
  return aligned(made, format, format.align != '\0' ? format.align : text ? '<' : '>');
}

/// Reads the fields of a form one after the other.
class Fields {
 public:
  Fields(const Arguments& arguments, Budget& budget) : arguments_(arguments), budget_(budget) {}

  std::string text_of(std::string_view field) {
    const size_t end = std::min(field.find_first_of("!:"), field.size());
    auto rest = field.substr(end);
    Value value = argument(field.substr(0, end), field);
    if (rest.starts_with('!')) {
      if (!rest.starts_with("!s") && !rest.starts_with("!r")) refuse_field(field);
      value = Value::string(rest[1] == 'r' ? representation(value, budget_) : printed(value, budget_));
      rest.remove_prefix(2);
    }
    if (!rest.empty() && rest[0] != ':') refuse_field(field);
    if (rest.size() <= 1) return printed(value, budget_);
    const auto format = read_format(rest.substr(1), field);
    if (format.width.size() > 4 || format.precision.size() > 5) refuse_field(field);
    if (!format.width.empty() && std::stoul(format.width) > kMostWidth) refuse_field(field);
    return formatted_value(value, format, field, budget_);
  }

 private:
  Value argument(std::string_view name, std::string_view field) {
    if (name.empty() || are_digits(name)) return placed(name, field);
    const auto is_it = [&](const auto& one) { return one.first == name; };
    const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(), is_it);
    if (found == arguments_.named.end()) refuse_field(field);
    return found->second;
  }

  /// Python refuses fields with and without numbers in one form.
  Value placed(std::string_view digits, std::string_view field) {
    (digits.empty() ? counted_ : numbered_) = true;
    const bool odd = digits.size() > 4 || (digits.size() > 1 && digits[0] == '0');
    if (odd || (counted_ && numbered_)) refuse_field(field);
    const size_t at = digits.empty() ? next_++ : std::stoul(std::string(digits));
    EK_CHECK(at < arguments_.placed.size(), kData, "format has no argument ", at);
    return arguments_.placed[at];
  }

  const Arguments& arguments_;
  Budget& budget_;
  size_t next_ = 0;
  bool counted_ = false, numbered_ = false;
};

}  // namespace

std::string brace_format(std::string_view form, const Arguments& arguments, Budget& budget) {
  Fields fields(arguments, budget);
  std::string out;
  for (size_t at = form.find_first_of("{}"); at != form.npos; at = form.find_first_of("{}")) {
    out += form.substr(0, at);
    const bool twice = at + 1 < form.size() && form[at + 1] == form[at];
    if (twice) out += form[at];
    const size_t close = twice ? at + 1 : form.find_first_of("{}", at + 1);
    EK_CHECK(twice || (form[at] == '{' && close != form.npos && form[close] == '}'), kData,
             "format: a brace without its partner, or a field within a field");
    if (!twice) {
      const auto part = fields.text_of(form.substr(at + 1, close - at - 1));
      budget.charge_bytes(part.size() + 16);
      out += part;
    }
    form.remove_prefix(close + 1);
  }
  return out += form;
}

}  // namespace evenkeel::jinja
