#include "jinja/operators.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "jinja/percent_format.h"
#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

[[noreturn]] void refuse_operands(std::string_view op, const Value& x, const Value& y) {
  fail(kData, x.kind(), " ", op, " ", y.kind(), " is not possible");
}

/// \param overflow  result of the checked operation \param value  a reference to its output, read after the operation
Value checked(bool overflow, const int64_t& value) {
  EK_CHECK(!overflow, kData, "a whole number beyond 64 bits");
  return Value::integer(value);
}

/// Rounds down, as Python does.
int64_t floor_quotient(int64_t x, int64_t y) {
  const int64_t quotient = x / y;
  return quotient * y != x && (x < 0) != (y < 0) ? quotient - 1 : quotient;
}

Value real_value(double value) { return Value(Value::Held(value)); }

/// Rounds down, as Python does: the remainder has the divisor's sign.
Value floor_division(bool quotient, double x, double y) {
  double remainder = std::fmod(x, y), whole = (x - remainder) / y;
  if (remainder == 0) {
    remainder = std::copysign(0.0, y);
  } else if ((y < 0) != (remainder < 0)) {
    remainder += y;
    whole -= 1;
  }
  if (!quotient) return real_value(remainder);
  if (whole == 0) return real_value(std::copysign(0.0, x / y));
  const double floor = std::floor(whole);
  return real_value(whole - floor > 0.5 ? floor + 1 : floor);
}

Value real_power(double x, double y) {
  EK_CHECK(x != 0 || y >= 0, kData, "a division by zero");
  EK_CHECK(x >= 0 || y == std::floor(y), kData, "a power that is no real number");
  const double out = std::pow(x, y);
  EK_CHECK(std::isfinite(out) || !std::isfinite(x) || !std::isfinite(y), kData, "a number beyond 64 bits");
  return real_value(out);
}

/// Divides two integers. Beyond 53 bits their conversion to double would round, so such operands are refused.
Value whole_ratio(int64_t x, int64_t y) {
  constexpr int64_t kExact = int64_t{1} << 53;
  EK_CHECK(x >= -kExact && x <= kExact && y >= -kExact && y <= kExact, kData,
           "/ of whole numbers beyond 53 bits is not part of the subset");
  return real_value(static_cast<double>(x) / static_cast<double>(y));
}

Value whole_power(int64_t x, int64_t y) {
  if (y < 0) return real_power(static_cast<double>(x), static_cast<double>(y));
  EK_CHECK(y <= 64 || (x >= -1 && x <= 1), kData, "a whole number beyond 64 bits");
  int64_t out = 1;
  bool overflow = false;
  for (int64_t i = 0; i < std::min<int64_t>(y, 64 + y % 2) && !overflow; ++i)
    overflow = __builtin_mul_overflow(out, x, &out);
  return checked(overflow, out);
}

Value whole_result(std::string_view op, int64_t x, int64_t y) {
  int64_t out = 0;
  if (op == "+") return checked(__builtin_add_overflow(x, y, &out), out);
  if (op == "-") return checked(__builtin_sub_overflow(x, y, &out), out);
  if (op == "*") return checked(__builtin_mul_overflow(x, y, &out), out);
  if (op == "**") return whole_power(x, y);
  EK_CHECK(y != 0, kData, "a division by zero");
  if (op == "/") return whole_ratio(x, y);
  EK_CHECK(y != -1 || x != INT64_MIN, kData, "a whole number beyond 64 bits");
  return Value::integer(op == "//" ? floor_quotient(x, y) : x - floor_quotient(x, y) * y);
}

Value real_result(std::string_view op, double x, double y) {
  if (op == "+") return real_value(x + y);
  if (op == "-") return real_value(x - y);
  if (op == "*") return real_value(x * y);
  if (op == "**") return real_power(x, y);
  EK_CHECK(y != 0, kData, "a division by zero");
  return op == "/" ? real_value(x / y) : floor_division(op == "//", x, y);
}

Value repeated(const Value& text, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  EK_CHECK(text.text().empty() || count <= Budget::kMost * Budget::kBytesPerStep / text.text().size(), kData,
           "a text repeated ", times, " times");
  std::string out;
  if (text.text().empty()) return Value::string("");
  budget.charge_bytes(count * text.text().size());
  for (size_t i = 0; i < count; ++i) out += text.text();
  return Value::string(std::move(out));
}

SequenceType shape_of(const Value& list) { return list.is_tuple() ? SequenceType::kTuple : SequenceType::kList; }

Value repeated_list(const Value& list, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  std::vector<Value> items;
  if (list.items().empty()) return Value::list({}, shape_of(list));
  EK_CHECK(count <= Budget::kMost / list.items().size(), kData, "a list repeated ", times, " times");
  budget.charge(count * list.items().size());
  for (size_t i = 0; i < count; ++i) items.insert(items.end(), list.items().begin(), list.items().end());
  return Value::list(std::move(items), shape_of(list));
}

/// Returns a text or list repeated `times` times.
Value repeated_value(const Value& x, int64_t times, Budget& budget) {
  return x.is_string() ? repeated(x, times, budget) : repeated_list(x, times, budget);
}

Value joined_lists(const Value& x, const Value& y, Budget& budget) {
  auto items = x.items();
  items.insert(items.end(), y.items().begin(), y.items().end());
  budget.charge(items.size());
  return Value::list(std::move(items), shape_of(x));
}

bool is_method_of_dict(std::string_view name) {
  constexpr std::array<std::string_view, 11> kMethods = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                                         "pop",   "popitem", "setdefault", "update", "values"};
  return std::find(kMethods.begin(), kMethods.end(), name) != kMethods.end();
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto count = static_cast<int64_t>(loop.items.size()), index = static_cast<int64_t>(loop.index);
  if (name == "index0") return Value::integer(index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth" || name == "depth0") return Value::integer(loop.recursion + (name == "depth" ? 1 : 0));
  if (name == "previtem") return index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < count ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  fail(kData, "loop.", name, " is not part of the subset");
}

/// Python's slice.indices(): the places that a slice takes, in order.
std::vector<size_t> places(size_t size, const Value& begin, const Value& end, const Value& step) {
  const auto given = [](const Value& part) -> std::optional<int64_t> {
    if (part.is<None>()) return std::nullopt;
    EK_CHECK(part.is_integer(), kData, "a slice with ", part.kind(), ", expected a whole number");
    return part.whole();
  };
  const int64_t stride = given(step).value_or(1), length = static_cast<int64_t>(size);
  EK_CHECK(stride != 0, kData, "a slice with step 0");
  const int64_t lowest = stride < 0 ? -1 : 0, highest = stride < 0 ? length - 1 : length;
  const auto place = [&](const std::optional<int64_t>& at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 && *at >= -length ? *at + length : *at < 0 ? lowest : *at, lowest, highest);
  };
  const int64_t from = place(given(begin), stride < 0 ? highest : lowest),
                to = place(given(end), stride < 0 ? lowest : highest);
  std::vector<size_t> out;
  for (int64_t at = from; stride > 0 ? at < to : at > to;) {
    out.push_back(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  return out;
}

template <typename Items>
auto at_place(const Items& items, int64_t place) -> decltype(items.data()) {
  const auto size = static_cast<int64_t>(items.size());
  if (place < 0) place += size;
  return place >= 0 && place < size ? items.data() + place : nullptr;
}

}  // namespace

namespace {

/// Returns the text, escaped as by Python's Markup unless it is marked safe.
std::string escaped(const Value& value) {
  if (const auto* safe = value.as<SafeText>()) return *safe->text;
  std::string out;
  for (const char c : value.text()) {
    constexpr std::string_view kMarks = "&<>\"'";
    constexpr std::array<std::string_view, 5> kEscapes = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    const auto at = kMarks.find(c);
    at == kMarks.npos ? void(out += c) : void(out += kEscapes[at]);
  }
  return out;
}

Value safe_sum(const Value& x, const Value& y, Budget& budget) {
  auto text = escaped(x) + escaped(y);
  budget.charge_bytes(text.size());
  return Value(Value::Held(SafeText{std::make_shared<const std::string>(std::move(text))}));
}

bool is_text(const Value& x) { return x.is_string() || x.is<SafeText>(); }

}  // namespace

Value calculated(std::string_view op, const Value& x, const Value& y, Budget& budget) {
  if (op == "~") {
    auto left = printed(x, budget);
    return budget.text(std::move(left) + printed(y, budget));
  }
  if (x.is_integer() && y.is_integer()) return whole_result(op, x.whole(), y.whole());
  if (x.is_number() && y.is_number()) return real_result(op, x.real(), y.real());
  if (op == "%" && x.is_string()) return budget.text(percent_format(x.text(), y, budget));
  if (op == "+" && is_text(x) && is_text(y) && !(x.is_string() && y.is_string())) return safe_sum(x, y, budget);
  if (op == "+" && x.is_string() && y.is_string()) return budget.text(x.text() + y.text());
  if (op == "+" && x.is_list_or_tuple() && y.is_list_or_tuple() && x.is_tuple() == y.is_tuple())
    return joined_lists(x, y, budget);
  const auto repeats = [](const Value& one) { return one.is_string() || one.is_list_or_tuple(); };
  if (op == "*" && repeats(x) && y.is_integer()) return repeated_value(x, y.whole(), budget);
  if (op == "*" && x.is_integer() && repeats(y)) return repeated_value(y, x.whole(), budget);
  refuse_operands(op, x, y);
}

Value negative(const Value& x) {
  if (x.is_integer()) return whole_result("-", 0, x.whole());
  EK_CHECK(x.is_number(), kData, "-", x.kind(), " is not possible");
  return Value(Value::Held(-x.real()));
}

bool contains(const Value& y, const Value& x, Budget& budget) {
  if (y.is_string()) {
    if (!x.is_string()) refuse_operands("in", x, y);
    budget.charge_bytes(y.text().size());
    return y.text().find(x.text()) != std::string::npos;
  }
  if (y.is_dict()) {
    if (!can_be_key(x, budget) && !x.is<Undefined>()) refuse_operands("in", x, y);
    return y.entries().find(x, budget) != nullptr;
  }
  if (!y.is_sequence() && !y.is<Undefined>()) refuse_operands("in", x, y);
  const auto items = iterated(y, budget);
  return std::any_of(items.begin(), items.end(), [&](const Value& one) { return equal(one, x, budget); });
}

namespace {

/// Returns true if Python's type of `x` has an attribute of this name that the sandbox of templates does not hide.
bool is_of_python(const Value& x, std::string_view name) {
  constexpr std::string_view kOfText =
      " capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha "
      "isascii "
      "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip "
      "maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split "
      "splitlines startswith strip swapcase title translate upper zfill ";
  constexpr std::string_view kOfNumber =
      " as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag is_integer numerator "
      "real to_bytes ";
  const auto wanted = concat(" ", name, " ");
  const auto names = x.is_string()   ? kOfText
                     : x.is_number() ? kOfNumber
                     : x.is_sequence()
                         ? std::string_view(" copy count index start stop step mapping isdisjoint throw send close ")
                         : std::string_view();
  return names.find(wanted) != names.npos;
}

/// Returns `grouper` or `list` of a result of groupby, otherwise undefined.
Value series_attribute(const Value& x, std::string_view name) {
  if (x.has_type(SequenceType::kGroup) && (name == "grouper" || name == "list")) return x.items()[name == "list"];
  return Value::undefined(name);
}

}  // namespace

Value attribute(const Value& x, std::string_view name) {
  EK_CHECK(!x.is<Undefined>(), kData, x.as<Undefined>()->name, " is undefined, so it has no ", name);
  EK_CHECK(!name.starts_with("_"), kData, "the attribute ", name, " is not part of the subset");
  EK_CHECK(!is_of_python(x, name) && !x.is<Function>() && !x.is<SafeText>(), kData, "the attribute ", name, " of ",
           x.kind(), " is not part of the subset");
  if (x.is_sequence()) return series_attribute(x, name);
  if (const auto* loop = x.as<std::shared_ptr<Loop>>()) return loop_attribute(**loop, name);
  const Dict* entries = x.is_dict() ? &x.entries() : x.is<Namespace*>() ? &(*x.as<Namespace*>())->variables : nullptr;
  EK_CHECK(!x.is_dict() || !is_method_of_dict(name), kData, "the method ", name,
           " that is not called is not part of the subset; the key is [\"", name, "\"]");
  if (const auto* value = entries ? entries->find(name) : nullptr) return *value;
  return Value::undefined(name);
}

Value item(const Value& x, const Value& key, Budget& budget) {
  EK_CHECK(!key.is<SafeText>(), kData, "a subscript that is ", key.kind(), " is not part of the subset");
  EK_CHECK(!x.is<SafeText>(), kData, "a subscript of ", x.kind(), " is not part of the subset");
  if (key.is_string() && !x.is_dict()) return attribute(x, key.text());
  EK_CHECK(!x.is<Undefined>(), kData, x.as<Undefined>()->name, " is undefined, so it has no items");
  if (x.is_dict()) {
    if (const auto* value = x.entries().find(key, budget)) return *value;
    return key.is_string() ? attribute(x, key.text()) : Value::undefined("item");
  }
  if (!key.is_integer()) return Value::undefined("item");
  if (x.is_list_or_tuple() || x.has_type(SequenceType::kRange)) {
    const auto* found = at_place(x.items(), key.whole());
    return found ? *found : Value::undefined("item");
  }
  if (!x.is_string()) return Value::undefined("item");
  budget.charge_bytes(x.text().size());
  const auto all = characters(x.text());
  const auto* found = at_place(all, key.whole());
  return found ? Value::string(std::string(*found)) : Value::undefined("item");
}

Value value_at_path(const Value& x, const Value& path, Budget& budget, const Value* otherwise) {
  const auto part_of = [&](const Value& at, const Value& part) {
    auto found = item(at, part, budget);
    return otherwise && found.is<Undefined>() ? *otherwise : found;
  };
  if (path.is<None>()) return x;
  if (!path.is_string()) return part_of(x, path);
  Value at = x;
  for (const auto& given : split_at(path.text(), ".")) {
    const auto part = with_ascii_digits(given, "an attribute");
    const bool number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    at = part_of(at, number ? Value::integer(std::stoll(part)) : Value::string(given));
  }
  return at;
}

Value slice(const Value& x, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  if (x.is_string()) {
    budget.charge_bytes(x.text().size() * 4);
    const auto all = characters(x.text());
    std::string out;
    for (const size_t at : places(all.size(), begin, end, step)) out += all[at];
    return budget.text(std::move(out));
  }
  EK_CHECK(x.is_list_or_tuple(), kData, "a slice of ", x.kind(), ", expected a string or a list");
  budget.charge(x.items().size());
  std::vector<Value> out;
  for (const size_t at : places(x.items().size(), begin, end, step)) out.push_back(x.items()[at]);
  return Value::list(std::move(out), shape_of(x));
}

std::vector<Value> iterated(const Value& x, Budget& budget) {
  if (x.is<Undefined>()) return {};
  if (x.is_sequence()) {
    const bool used =
        x.has_type(SequenceType::kGenerator) && std::exchange((*x.as<std::shared_ptr<const List>>())->used, true);
    EK_CHECK(!used, kData, "to go over a generator twice is not part of the subset: keep it with | list");
    budget.charge(x.items().size());
    return x.items();
  }
  std::vector<Value> out;
  if (x.is_dict()) {
    for (const auto& entry : x.entries().entries) out.push_back(entry.first);
  } else {
    EK_CHECK(x.is_string(), kData, x.kind(), " has no items to go over");
    for (const auto one : characters(x.text())) out.push_back(Value::string(std::string(one)));
  }
  budget.charge(out.size());
  return out;
}

}  // namespace evenkeel::jinja
