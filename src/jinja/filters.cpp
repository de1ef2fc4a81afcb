// Implements filters and tests.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/plain/text.h"
#include "base/unicode/unicode.h"
#include "jinja/filter_call.h"
#include "jinja/operators.h"
#include "jinja/percent_format.h"
#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

Value list_of(std::vector<Value> items) { return Value::list(std::move(items)); }
Value generator(std::vector<Value> items) { return Value::list(std::move(items), SequenceType::kGenerator); }

Value default_value(const FilterCall& call) {
  auto otherwise = call.arguments.take("default_value").value_or(Value::string(""));
  const auto falsy_too = call.arguments.take("boolean");
  const bool missing = call.x.is<Undefined>() || (falsy_too && falsy_too->truth() && !call.x.truth());
  return missing ? otherwise : call.x;
}

/// Refuses safe strings, because Markup methods would also escape the added text.
void refuse_safe(const FilterCall& call) {
  EK_CHECK(!call.x.is<SafeText>(), kData, call.name, " of ", call.x.kind(), " is not part of the subset");
}

Value trim(const FilterCall& call) {
  refuse_safe(call);
  const auto unwanted = call.arguments.take("chars");
  const auto text = printed(call.x, call.budget);
  if (!unwanted || unwanted->is<None>()) return call.budget.text(std::string(stripped(text, Side::kBoth)));
  const auto set = Arguments::text_of(*unwanted, "chars", call.name);
  return call.budget.text(std::string(stripped(text, Side::kBoth, &set)));
}

/// Implements a filter by the string method of the same name.
Value by_method(const FilterCall& call) {
  refuse_safe(call);
  Arguments none;
  return called_method(Value::string(printed(call.x, call.budget)), call.name, none, call.budget);
}

/// Capitalises words. A word begins after white space, a hyphen or an opening bracket, but not after an apostrophe.
Value title(const FilterCall& call) {
  std::string out;
  const auto text = printed(call.x, call.budget);
  bool begins = true;
  for (const auto one : characters(text)) {
    out += begins ? uppered(one, call.name) : lowered(one, call.name);
    begins = is_space(unicode::decode(one.data()).value) || std::string_view("-({[<").find(one) != one.npos;
  }
  return call.budget.text(std::move(out));
}

Value replace_in(const FilterCall& call) {
  return called_method(Value::string(printed(call.x, call.budget)), "replace", call.arguments, call.budget);
}

Value length(const FilterCall& call) {
  if (call.x.is_dict()) return Value::integer(static_cast<int64_t>(call.x.entries().entries.size()));
  EK_CHECK(!call.x.has_type(SequenceType::kGenerator), kData, "a generator has no length: use | list | length");
  if (call.x.is_sequence()) return Value::integer(static_cast<int64_t>(call.x.items().size()));
  return Value::integer(static_cast<int64_t>(iterated(call.x, call.budget).size()));
}

Value join_all(const FilterCall& call) {
  const auto separator = call.arguments.take("d");
  const auto path = call.arguments.take("attribute");
  const auto between = separator ? printed(*separator, call.budget) : "";
  std::string out;
  bool first = true;
  for (const auto& one : iterated(call.x, call.budget)) {
    if (!std::exchange(first, false)) out += between;
    const auto text = printed(path ? value_at_path(one, *path, call.budget) : one, call.budget);
    call.budget.charge_bytes(between.size() + text.size());
    out += text;
  }
  return Value::string(std::move(out));
}

/// Returns the result of map, select and their like for a false value. Jinja ignores their arguments then.
Value nothing_of(const FilterCall& call) {
  call.arguments = {};
  return generator({});
}

Value map_all(const FilterCall& call) {
  if (!call.x.truth()) return nothing_of(call);
  const auto items = iterated(call.x, call.budget);
  std::vector<Value> out;
  if (call.arguments.placed.empty()) {
    const auto path = call.arguments.need("attribute", call.name);
    const auto given = call.arguments.take("default");
    const auto* otherwise = given && !given->is<None>() ? &*given : nullptr;
    for (const auto& one : items) out.push_back(value_at_path(one, path, call.budget, otherwise));
    return generator(std::move(out));
  }
  const auto filter = call.arguments.text("filter", call.name);
  for (const auto& one : items) {
    auto arguments = call.arguments;
    out.push_back(filtered(filter, one, arguments, call.budget));
  }
  call.arguments = {};
  return generator(std::move(out));
}

/// Implements select and reject, and selectattr and rejectattr, which test an attribute of each item.
Value chosen(const FilterCall& call) {
  if (!call.x.truth()) return nothing_of(call);
  const bool keeps = call.name.starts_with("select"), of_attribute = call.name.ends_with("attr");
  const auto path = of_attribute ? call.arguments.need("attribute", call.name) : Value::none();
  const auto test = call.arguments.take("test");
  std::vector<Value> out;
  for (const auto& one : iterated(call.x, call.budget)) {
    const auto subject = of_attribute ? value_at_path(one, path, call.budget) : one;
    auto arguments = call.arguments;
    const bool holds =
        test ? tested(Arguments::text_of(*test, "test", call.name), subject, arguments, call.budget) : subject.truth();
    if (holds == keeps) out.push_back(one);
  }
  call.arguments = {};
  return generator(std::move(out));
}

Value first_or_last(const FilterCall& call) {
  EK_CHECK(call.name == "first" || !call.x.has_type(SequenceType::kGenerator), kData, "last of a generator");
  const auto items = iterated(call.x, call.budget);
  if (items.empty()) return Value::undefined("item");
  return call.name == "first" ? items.front() : items.back();
}

Value to_list(const FilterCall& call) { return list_of(iterated(call.x, call.budget)); }

Value reversed(const FilterCall& call) {
  auto items = iterated(call.x, call.budget);
  std::reverse(items.begin(), items.end());
  const auto shape = call.x.has_type(SequenceType::kGenerator) ? SequenceType::kList : SequenceType::kGenerator;
  if (!call.x.is_string()) return Value::list(std::move(items), shape);
  std::string out;
  for (const auto& one : items) out += one.text();
  return call.budget.text(std::move(out));
}

Value dict_items(const FilterCall& call) {
  if (call.x.is<Undefined>()) return generator({});
  EK_CHECK(call.x.is_dict(), kData, call.name, " of ", call.x.kind(), ", expected a dict");
  Arguments none;
  return generator(called_method(call.x, "items", none, call.budget).items());
}

Value as_text(const FilterCall& call) {
  if (call.x.is<SafeText>()) return call.x;
  return call.budget.text(printed(call.x, call.budget));
}

/// Returns the indentation of tojson, as in json.dumps: a text or a number of spaces. Below 0, lines are not indented.
std::optional<std::string> indent_of(const FilterCall& call) {
  const auto given = call.arguments.take("indent");
  if (!given || given->is<None>()) return std::nullopt;
  if (given->is_string()) return given->text();
  EK_CHECK(given->is_integer() && given->whole() <= 64, kData, "tojson: indent is ", given->kind(),
           ", expected a text or a number up to 64");
  return std::string(static_cast<size_t>(std::max<int64_t>(given->whole(), 0)), ' ');
}

void take_separators(const FilterCall& call, JsonForm& form) {
  const auto separators = call.arguments.take("separators");
  if (!separators || separators->is<None>()) return;
  EK_CHECK(separators->is_list_or_tuple() && separators->items().size() == 2, kData,
           "tojson: separators are two texts");
  form.between = Arguments::text_of(separators->items()[0], "separators", call.name);
  form.colon = Arguments::text_of(separators->items()[1], "separators", call.name);
}

Value as_json(const FilterCall& call) {
  JsonForm form;
  const auto ascii = call.arguments.take("ensure_ascii");
  form.ascii = ascii && ascii->truth();
  form.indent = indent_of(call);
  if (form.indent) form.between = ",";
  take_separators(call, form);
  const auto sort = call.arguments.take("sort_keys");
  form.sort_keys = sort && sort->truth();
  EK_CHECK(form.between.size() + form.colon.size() + form.indent.value_or("").size() <= 1024, kData,
           "tojson: separators and indent of more than 1024 bytes");
  return Value::string(json_text(call.x, form, call.budget));
}

Value as_integer(const FilterCall& call) {
  const auto otherwise = call.arguments.take("default").value_or(Value::integer(0));
  EK_CHECK(!call.x.is<Undefined>(), kData, "int of what is undefined");
  if (call.x.is_integer()) return Value::integer(call.x.whole());
  if (call.x.is_number()) {
    EK_CHECK(std::abs(call.x.real()) < 9e18, kData, "a whole number beyond 64 bits");
    return Value::integer(static_cast<int64_t>(call.x.real()));
  }
  EK_CHECK(!call.x.is<SafeText>(), kData, "int of ", call.x.kind());
  if (!call.x.is_string()) return otherwise;
  const auto text = with_ascii_digits(stripped(call.x.text(), Side::kBoth), call.name);
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  EK_CHECK(read.ec != std::errc::result_out_of_range, kData, "a whole number beyond 64 bits");
  if (read.ec == std::errc() && read.ptr == text.data() + text.size()) return Value::integer(value);
  const bool like_a_number =
      !text.empty() && std::string_view("0123456789+-.").find(text.front()) != std::string_view::npos;
  EK_CHECK(!like_a_number, kData, "int of \"", text, "\" is not part of the subset");
  return otherwise;
}

Value absolute(const FilterCall& call) {
  EK_CHECK(call.x.is_number(), kData, "abs of ", call.x.kind());
  if (call.x.is_integer() && call.x.whole() >= 0) return Value::integer(call.x.whole());  // also turns true into 1
  return std::signbit(call.x.real()) ? negative(call.x) : call.x;
}

/// Indents the lines after the first by `width` spaces, except blank lines. As in jinja2, every line end becomes a
/// newline, and a carriage return at the end of the text is lost.
Value indented(const FilterCall& call) {
  const auto width = call.arguments.take("width").value_or(Value::integer(4));
  EK_CHECK(width.is_string() || (width.is_integer() && width.whole() >= 0 && width.whole() <= 1024), kData,
           "indent: width is ", width.kind(), ", expected a text or 0 .. 1024");
  const auto space = width.is_string() ? width.text() : std::string(static_cast<size_t>(width.whole()), ' ');
  const auto first = call.arguments.take("first"), blank = call.arguments.take("blank");
  EK_CHECK(call.x.is_string(), kData, "indent of ", call.x.kind(), ", expected a string");
  const auto text = concat(call.x.text(), "\n");
  const auto lines = split_lines(text);
  call.budget.charge_bytes(lines.size() * (space.size() + 16));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool wanted = i == 0 ? first && first->truth() : !lines[i].empty() || (blank && blank->truth());
    out.append(i ? "\n" : "").append(wanted ? space : "").append(lines[i]);
  }
  return call.budget.text(std::move(out));
}

Value safe(const FilterCall& call) {
  if (call.x.is<SafeText>()) return call.x;
  return Value(Value::Held(SafeText{std::make_shared<const std::string>(printed(call.x, call.budget))}));
}

Value formatted(const FilterCall& call) {
  refuse_safe(call);
  EK_CHECK(call.arguments.named.empty(), kData, "format with names is not part of the subset");
  auto values = Value::list(std::move(call.arguments.placed), SequenceType::kTuple);
  call.arguments = {};
  return call.budget.text(percent_format(printed(call.x, call.budget), values, call.budget));
}

/// Implements float for strings of digits with at most one point.
Value as_real(const FilterCall& call) {
  const auto otherwise = call.arguments.take("default").value_or(Value(Value::Held(0.0)));
  if (call.x.is_number()) return Value(Value::Held(call.x.real()));
  EK_CHECK(!call.x.is<Undefined>(), kData, "float of what is undefined");
  if (!call.x.is_string()) return otherwise;
  const auto text = with_ascii_digits(stripped(call.x.text(), Side::kBoth), call.name);
  const bool plain = !text.empty() && text.size() < 300 && text.find_first_not_of("0123456789.") == text.npos &&
                     text != "." && std::count(text.begin(), text.end(), '.') <= 1;
  if (!plain) {
    EK_CHECK(text.find_first_of("0123456789nN") == text.npos, kData, "float of \"", text,
             "\" is not part of the subset");
    return otherwise;
  }
  return Value(Value::Held(parse_number<double>(text).value_or(0)));
}

struct Filter {
  std::string_view name;
  Value (*apply)(const FilterCall&);
};
constexpr std::array kFilters = {
    Filter{"default", default_value}, Filter{"d", default_value},     Filter{"trim", trim},
    Filter{"lower", by_method},       Filter{"upper", by_method},     Filter{"capitalize", by_method},
    Filter{"replace", replace_in},    Filter{"length", length},       Filter{"count", length},
    Filter{"join", join_all},         Filter{"map", map_all},         Filter{"select", chosen},
    Filter{"reject", chosen},         Filter{"selectattr", chosen},   Filter{"rejectattr", chosen},
    Filter{"first", first_or_last},   Filter{"last", first_or_last},  Filter{"list", to_list},
    Filter{"reverse", reversed},      Filter{"unique", unique_items}, Filter{"items", dict_items},
    Filter{"dictsort", dict_sorted},  Filter{"string", as_text},      Filter{"tojson", as_json},
    Filter{"int", as_integer},        Filter{"abs", absolute},        Filter{"indent", indented},
    Filter{"sort", sorted_values},    Filter{"groupby", grouped},     Filter{"min", least_or_greatest},
    Filter{"max", least_or_greatest}, Filter{"format", formatted},    Filter{"safe", safe},
    Filter{"title", title},           Filter{"float", as_real}};

using Held = const Value&;
bool is_iterable(Held x) {
  return x.is_string() || x.is<SafeText>() || x.is_sequence() || x.is_dict() || x.is<Undefined>();
}
bool is_sequence(Held x) {
  return is_iterable(x) && !x.has_type(SequenceType::kGenerator) && !x.has_type(SequenceType::kView);
}
bool is_truth(Held x, bool wanted) { return x.as<bool>() && *x.as<bool>() == wanted; }

struct Test {
  std::string_view name;
  bool (*holds)(Held);
};
constexpr std::array kTests = {
    Test{"defined", [](Held x) { return !x.is<Undefined>(); }},
    Test{"undefined", [](Held x) { return x.is<Undefined>(); }},
    Test{"none", [](Held x) { return x.is<None>(); }},
    Test{"string", [](Held x) { return x.is_string() || x.is<SafeText>(); }},
    Test{"mapping", [](Held x) { return x.is_dict(); }},
    Test{"sequence", is_sequence},
    Test{"iterable", is_iterable},
    Test{"number", [](Held x) { return x.is_number(); }},
    Test{"integer", [](Held x) { return x.is<int64_t>(); }},
    Test{"float", [](Held x) { return x.is<double>(); }},
    Test{"boolean", [](Held x) { return x.is<bool>(); }},
    Test{"true", [](Held x) { return is_truth(x, true); }},
    Test{"false", [](Held x) { return is_truth(x, false); }},
    Test{"callable", [](Held x) { return x.is<Function>() || x.is<Undefined>() || x.is<std::shared_ptr<Loop>>(); }},
};

bool is_of_number(std::string_view name, const Value& x, Arguments& arguments) {
  EK_CHECK(x.is_integer(), kData, name, " of ", x.kind(), ", expected a whole number");
  const int64_t divisor = name == "divisibleby" ? arguments.integer("num", name).value_or(0) : 2;
  EK_CHECK(divisor != 0 && divisor != -1, kData, name, ": a division by ", divisor);
  return (x.whole() % divisor == 0) == (name != "odd");
}

bool compared(std::string_view name, const Value& x, const Value& y, Budget& budget) {
  if (name == "in") return contains(y, x, budget);
  if (name == "sameas") {
    EK_CHECK(y.is<None>() || y.is<bool>(), kData, "sameas is part of the subset for none, true and false alone");
    return y.is<None>() ? x.is<None>() : is_truth(x, *y.as<bool>());
  }
  if (name == "==" || name == "eq" || name == "equalto") return equal(x, y, budget);
  if (name == "!=" || name == "ne") return !equal(x, y, budget);
  if (name == "<" || name == "lt" || name == "lessthan") return less(x, y, budget);
  if (name == ">" || name == "gt" || name == "greaterthan") return less(y, x, budget);
  if (name == "<=" || name == "le") return !less(y, x, budget);
  return !less(x, y, budget);
}

constexpr std::array<std::string_view, 17> kComparisons = {
    "in",       "sameas", "==", "eq",          "equalto", "!=", "ne", "<", "lt",
    "lessthan", ">",      "gt", "greaterthan", "<=",      "le", ">=", "ge"};

}  // namespace

Value filtered(std::string_view name, const Value& x, Arguments& arguments, Budget& budget) {
  const auto found = std::find_if(kFilters.begin(), kFilters.end(), [&](const auto& one) { return one.name == name; });
  EK_CHECK(found != kFilters.end(), kData, "the filter ", name, " is not part of the subset of Jinja that is read");
  if (x.is_string()) budget.charge_bytes(x.text().size());
  auto out = found->apply({x, name, arguments, budget});
  arguments.finish(name);
  return out;
}

bool tested(std::string_view name, const Value& x, Arguments& arguments, Budget& budget) {
  const auto found = std::find_if(kTests.begin(), kTests.end(), [&](const auto& one) { return one.name == name; });
  bool out;
  if (found != kTests.end()) {
    out = found->holds(x);
  } else if (name == "odd" || name == "even" || name == "divisibleby") {
    out = is_of_number(name, x, arguments);
  } else {
    const bool known = std::find(kComparisons.begin(), kComparisons.end(), name) != kComparisons.end();
    EK_CHECK(known, kData, "the test ", name, " is not part of the subset of Jinja that is read");
    out = compared(name, x, arguments.need("a value to compare with", concat("the test ", name)), budget);
  }
  arguments.finish(name);
  return out;
}

}  // namespace evenkeel::jinja
