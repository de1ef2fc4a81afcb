#include "jinja/value.h"

#include <algorithm>
#include <array>

#include "base/plain/error.h"

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

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& entry : entries)
    if (entry.first.is_string() && entry.first.text() == key) return &entry.second;
  return nullptr;
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

}  // namespace evenkeel::jinja
