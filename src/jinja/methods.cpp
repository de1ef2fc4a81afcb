// Implements the methods of strings and dicts that do not modify them.
#include <algorithm>
#include <array>

#include "jinja/brace_format.h"
#include "jinja/operators.h"
#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

// A call is charged to the budget before it allocates: about one unit for each byte that it reads or writes, and
// several for each value that it makes.

struct MethodCall {
  const std::string& text;
  std::string_view name;
  Arguments& arguments;
  Budget& budget;
};

Value strip(const MethodCall& call) {
  const auto side = call.name == "strip" ? Side::kBoth : call.name == "lstrip" ? Side::kLeft : Side::kRight;
  const auto unwanted = call.arguments.take("chars");
  if (!unwanted || unwanted->is<None>()) return call.budget.text(std::string(stripped(call.text, side)));
  const auto set = Arguments::text_of(*unwanted, "chars", call.name);
  call.budget.charge(set.size());
  return call.budget.text(std::string(stripped(call.text, side, &set)));
}

Value split(const MethodCall& call) {
  const auto separator = call.arguments.take("sep");
  const int64_t most = call.arguments.integer("maxsplit", call.name).value_or(-1);
  call.budget.charge_bytes(call.text.size() * 8);
  const auto parts = !separator || separator->is<None>()
                         ? split_at_space(call.text, most)
                         : split_at(call.text, Arguments::text_of(*separator, "sep", call.name), most);
  call.budget.charge(parts.size() * 4);
  std::vector<Value> out;
  for (const auto& part : parts) out.push_back(Value::string(part));
  return Value::list(std::move(out));
}

/// Implements startswith and endswith. The argument is a string or a tuple of strings.
Value starts_or_ends(const MethodCall& call) {
  const auto wanted = call.arguments.need("prefix", call.name);
  const auto matches = [&](const Value& one) {
    const auto text = Arguments::text_of(one, "what to look for", call.name);
    return call.name == "startswith" ? call.text.starts_with(text) : call.text.ends_with(text);
  };
  if (!wanted.is_tuple()) return Value::boolean(matches(wanted));
  return Value::boolean(std::any_of(wanted.items().begin(), wanted.items().end(), matches));
}

Value replace(const MethodCall& call) {
  const auto from = call.arguments.text("old", call.name), to = call.arguments.text("new", call.name);
  const int64_t most = call.arguments.integer("count", call.name).value_or(-1);
  if (from.empty()) call.budget.charge_bytes((call.text.size() + 1) * to.size());
  call.budget.charge_bytes(call.text.size() * (to.size() / std::max<size_t>(from.size(), 1) + 2));
  return call.budget.text(replaced(call.text, from, to, most));
}

Value join(const MethodCall& call) {
  std::string out;
  bool first = true;
  for (const auto& one : iterated(call.arguments.need("iterable", call.name), call.budget)) {
    if (!std::exchange(first, false)) out += call.text;
    out += Arguments::text_of(one, "an item", call.name);
    call.budget.charge_bytes(call.text.size() + one.text().size());
  }
  return Value::string(std::move(out));
}

Value find(const MethodCall& call) {
  const auto wanted = call.arguments.text("sub", call.name);
  const auto at = call.text.find(wanted);
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(static_cast<int64_t>(characters(std::string_view(call.text).substr(0, at)).size()));
}

Value count(const MethodCall& call) {
  const auto wanted = call.arguments.text("sub", call.name);
  if (wanted.empty()) return Value::integer(static_cast<int64_t>(characters(call.text).size()) + 1);
  return Value::integer(static_cast<int64_t>(split_at(call.text, wanted).size()) - 1);
}

Value without_affix(const MethodCall& call) {
  const auto affix = call.arguments.text("affix", call.name);
  std::string_view text = call.text;
  if (call.name == "removeprefix" && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (call.name == "removesuffix" && text.ends_with(affix)) text.remove_suffix(affix.size());
  return call.budget.text(std::string(text));
}

Value with_case(const MethodCall& call) {
  if (call.name == "lower") return call.budget.text(lowered(call.text, call.name));
  if (call.name == "upper") return call.budget.text(uppered(call.text, call.name));
  return call.budget.text(titled(call.text, call.name == "title", call.name));
}

/// Takes all arguments. As in Python, unused ones are no error.
Value format(const MethodCall& call) {
  auto text = brace_format(call.text, call.arguments, call.budget);
  call.arguments = {};
  return call.budget.text(std::move(text));
}

struct Method {
  std::string_view name;
  Value (*apply)(const MethodCall&);
};
constexpr std::array kMethods = {Method{"strip", strip},
                                 Method{"lstrip", strip},
                                 Method{"rstrip", strip},
                                 Method{"split", split},
                                 Method{"startswith", starts_or_ends},
                                 Method{"endswith", starts_or_ends},
                                 Method{"replace", replace},
                                 Method{"join", join},
                                 Method{"find", find},
                                 Method{"count", count},
                                 Method{"removeprefix", without_affix},
                                 Method{"removesuffix", without_affix},
                                 Method{"lower", with_case},
                                 Method{"upper", with_case},
                                 Method{"title", with_case},
                                 Method{"capitalize", with_case},
                                 Method{"format", format}};

Value of_dict(const Dict& dict, std::string_view name, Arguments& arguments, Budget& budget) {
  if (name == "get") {
    const auto key = arguments.need("key", name);
    auto otherwise = arguments.take("default").value_or(Value::none());
    EK_CHECK(can_be_key(key, budget) || key.is<Undefined>(), kData, "get: ", key.kind(), " cannot be a key of a dict");
    const auto* found = dict.find(key, budget);
    return found ? *found : otherwise;
  }
  EK_CHECK(name == "items" || name == "keys" || name == "values", kData, "the method ", name,
           " of a dict is not part of the subset: get, items, keys, values");
  budget.charge(dict.entries.size());
  std::vector<Value> out;
  for (const auto& [key, value] : dict.entries)
    out.push_back(name == "keys" ? key : name == "values" ? value : Value::list({key, value}, SequenceType::kTuple));
  return Value::list(std::move(out), SequenceType::kView);
}

}  // namespace

Value called_method(const Value& x, std::string_view name, Arguments& arguments, Budget& budget) {
  Value out;
  if (x.is_dict()) {
    out = of_dict(x.entries(), name, arguments, budget);
  } else {
    EK_CHECK(x.is_string(), kData, "the method ", name, " of ", x.kind(), " is not part of the subset");
    const auto found =
        std::find_if(kMethods.begin(), kMethods.end(), [&](const auto& one) { return one.name == name; });
    EK_CHECK(found != kMethods.end(), kData, "the method ", name, " of a string is not part of the subset");
    budget.charge_bytes(x.text().size());
    out = found->apply({x.text(), name, arguments, budget});
  }
  arguments.finish(name);
  return out;
}

}  // namespace evenkeel::jinja
