#include "jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/plain/error.h"
#include "base/unicode/unicode.h"
#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

int deeper(int depth) {
  EK_CHECK(depth < Value::kDeepest, kData, "values are nested deeper than ", Value::kDeepest);
  return depth + 1;
}

template <typename Values, typename ValueOf>
int depth_around(const Values& values, ValueOf&& value_of) {
  int deepest = 0;
  for (const auto& one : values) deepest = std::max(deepest, value_of(one).depth());
  return deeper(deepest);
}

/// Returns Python's repr() of a float: the shortest digits that read back; exponents from 1e16 and below 1e-4.
std::string float_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  char digits[64];
  const auto form = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, value, form).ptr);
  return fixed && text.find('.') == std::string::npos ? text + ".0" : text;
}

constexpr std::string_view kHex = "0123456789abcdef";

/// Returns the escape of a character: \\xe9, \\u2028 or \\U000e0001.
std::string escaped_point(uint32_t point) {
  const int digits = point < 0x100 ? 2 : point < 0x10000 ? 4 : 8;
  std::string out = digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[point >> shift & 15];
  return out;
}

std::string quoted_character(std::string_view one, char quote) {
  constexpr std::string_view kNamed = "\n\r\t\\", kLetters = "nrt\\";
  const auto at = kNamed.find(one.front());
  if (at != kNamed.npos || one.front() == quote) return {'\\', at != kNamed.npos ? kLetters[at] : quote};
  const auto point = unicode::decode(one.data()).value;
  return is_printable(point) ? std::string(one) : escaped_point(point);
}

/// Returns Python's repr() of a string.
std::string quoted(const std::string& text) {
  const bool single = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = single ? '"' : '\'';
  std::string out(1, quote);
  for (const auto one : characters(text)) out += quoted_character(one, quote);
  return out + quote;
}

std::string list_text(const List& list) {
  std::string out;
  for (size_t i = 0; i < list.items.size(); ++i) out += (i == 0 ? "" : ", ") + representation(list.items[i]);
  if (list.type == SequenceType::kList) return "[" + out + "]";
  return "(" + out + (list.items.size() == 1 ? ",)" : ")");
}

std::string dict_text(const Dict& dict) {
  std::string out;
  for (const auto& [key, value] : dict.entries)
    out += (out.empty() ? "" : ", ") + representation(key) + ": " + representation(value);
  return "{" + out + "}";
}

bool is_nan(const Value& x) { return x.is<double>() && std::isnan(x.real()); }

bool has_text(const Value& x) { return x.is_string() || x.is<SafeText>(); }
const std::string& text_in(const Value& x) { return x.is_string() ? x.text() : *x.as<SafeText>()->text; }

template <typename T>
bool same_held(const Value& x, const Value& y) {
  return *x.as<T>() == *y.as<T>();
}

bool equal_lists(const std::vector<Value>& x, const std::vector<Value>& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), equal);
}

/// Compares lists lexicographically.
bool less_lists(const std::vector<Value>& x, const std::vector<Value>& y) {
  const auto [left, right] = std::mismatch(x.begin(), x.end(), y.begin(), y.end(), equal);
  return left == x.end() || right == y.end() ? x.size() < y.size() : less(*left, *right);
}

bool equal_dicts(const Dict& x, const Dict& y) {
  if (x.entries.size() != y.entries.size()) return false;
  return std::all_of(x.entries.begin(), x.entries.end(), [&](const auto& entry) {
    const auto* other = y.find(entry.first);
    return other && equal(entry.second, *other);
  });
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& entry : entries)
    if (entry.first.is_string() && entry.first.text() == key) return &entry.second;
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.text());
  if (!can_be_key(key)) return nullptr;
  for (const auto& entry : entries)
    if (equal(entry.first, key)) return &entry.second;
  return nullptr;
}

void Dict::put(Value key, Value value) {
  EK_CHECK(can_be_key(key) && !is_nan(key), kData, key.kind(), " cannot be a key of a dict");
  const auto same =
      std::find_if(entries.begin(), entries.end(), [&](const auto& one) { return equal(one.first, key); });
  if (same != entries.end())
    same->second = std::move(value);
  else
    entries.emplace_back(std::move(key), std::move(value));
}

Value Value::list(std::vector<Value> items, SequenceType shape) {
  const int depth = depth_around(items, [](const Value& item) -> const Value& { return item; });
  return Value(Held(std::make_shared<const List>(List{std::move(items), shape, depth})));
}

Value Value::dict(std::vector<std::pair<std::string, Value>> entries) {
  Dict::Entries keyed;
  keyed.reserve(entries.size());
  for (auto& [key, value] : entries) keyed.emplace_back(string(std::move(key)), std::move(value));
  return dict_of(std::move(keyed));
}

Value Value::dict_of(Dict::Entries entries) {
  const int depth = depth_around(entries, [](const auto& entry) -> const Value& { return entry.second; });
  return Value(Held(std::make_shared<const Dict>(Dict{std::move(entries), depth})));
}

bool Value::truth() const {
  if (is<Undefined>() || is<None>()) return false;
  if (is_number()) return real() != 0;
  if (is_string()) return !text().empty();
  if (const auto* safe = as<SafeText>()) return !safe->text->empty();
  if (has_type(SequenceType::kGenerator)) return true;
  if (is_sequence()) return !items().empty();
  return !is_dict() || !entries().entries.empty();
}

int Value::depth() const {
  if (is_sequence()) return (*as<std::shared_ptr<const List>>())->depth;
  if (is_dict()) return entries().depth;
  if (const auto* loop = as<std::shared_ptr<Loop>>()) return (*loop)->depth;
  return 0;
}

std::string_view Value::kind() const {
  constexpr std::array<std::string_view, 12> kKinds = {
      "nothing (undefined)", "none",       "a boolean", "a number",          "a number", "a string", "a list", "a dict",
      "a namespace",         "a function", "a loop",    "a text marked safe"};
  if (is_sequence() && !is_list_or_tuple()) return "a generator, range or view of a dict";
  return kKinds[held_.index()];
}

int compare_numbers(const Value& x, const Value& y) {
  const auto order = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
  if (x.is_integer() && y.is_integer()) return order(x.whole(), y.whole());
  if (x.is_integer()) return -compare_numbers(y, x);
  const double real = x.real();
  if (y.is<double>()) return order(real, y.real());
  if (real >= 0x1p63 || real < -0x1p63) return real < 0 ? -1 : 1;
  const int whole = order(static_cast<int64_t>(real), y.whole());
  return whole != 0 ? whole : order(real, std::trunc(real));
}

bool can_be_key(const Value& value) {
  if (value.is_tuple()) return std::all_of(value.items().begin(), value.items().end(), can_be_key);
  return value.is_string() || value.is_number() || value.is<None>();
}

bool equal(const Value& x, const Value& y) {
  if (x.is_sequence() && y.is_sequence() && !(x.is_list_or_tuple() && y.is_list_or_tuple()))
    EK_CHECK(x.is_list_or_tuple() || y.is_list_or_tuple(), kData,
             "to compare generators, ranges or views of dicts is not part of the subset");
  if (x.is_integer() && y.is_integer()) return x.whole() == y.whole();
  if (x.is_number() && y.is_number()) return !is_nan(x) && !is_nan(y) && compare_numbers(x, y) == 0;
  if (has_text(x) && has_text(y)) return text_in(x) == text_in(y);
  if (x.is_list_or_tuple() && y.is_list_or_tuple())
    return x.is_tuple() == y.is_tuple() && equal_lists(x.items(), y.items());
  if (x.is_dict() && y.is_dict()) return equal_dicts(x.entries(), y.entries());
  if (x.is<Namespace*>() && y.is<Namespace*>()) return same_held<Namespace*>(x, y);
  return (x.is<None>() && y.is<None>()) || (x.is<Undefined>() && y.is<Undefined>());
}

bool less(const Value& x, const Value& y) {
  if (x.is_integer() && y.is_integer()) return x.whole() < y.whole();
  if (x.is_number() && y.is_number()) return !is_nan(x) && !is_nan(y) && compare_numbers(x, y) < 0;
  if (x.is_list_or_tuple() && y.is_list_or_tuple() && x.is_tuple() == y.is_tuple())
    return less_lists(x.items(), y.items());
  EK_CHECK(x.is_string() && y.is_string(), kData, x.kind(), " cannot be compared with ", y.kind());
  return x.text() < y.text();  // UTF-8 sorts like code points
}

std::string representation(const Value& value) {
  if (value.is<Undefined>()) return "Undefined";
  EK_CHECK(!value.is<SafeText>(), kData, "a list or dict that holds what | safe gave is not part of the subset");
  return value.is_string() ? quoted(value.text()) : printed(value);
}

std::string printed(const Value& value) {
  if (const auto* safe = value.as<SafeText>()) return *safe->text;
  if (value.is_string()) return value.text();
  if (value.is<Undefined>()) return "";
  if (value.is<None>()) return "None";
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.whole());
  if (value.is<double>()) return float_text(value.real());
  if (value.is_list_or_tuple()) return list_text(**value.as<std::shared_ptr<const List>>());
  EK_CHECK(value.is_dict(), kData, value.kind(), " cannot be printed");
  return dict_text(value.entries());
}

}  // namespace evenkeel::jinja
