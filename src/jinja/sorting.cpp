// Implements filters that sort, group and compare.
#include <algorithm>
#include <cmath>

#include "jinja/filter_call.h"
#include "jinja/operators.h"
#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

struct Keyed {
  Value key, value;
};

bool is_given(const std::optional<Value>& flag) { return flag && flag->truth(); }

/// Returns text in lower case if case does not matter.
Value without_case(const Value& value, bool case_sensitive) {
  EK_CHECK(!value.is<double>() || !std::isnan(value.real()), kData, "to sort what is not a number");
  EK_CHECK(!value.is<SafeText>(), kData, "to sort ", value.kind(), " is not part of the subset");
  if (case_sensitive || !value.is_string()) return value;
  return Value::string(lowered(value.text(), "to sort without case"));
}

/// Returns the attribute `path` of a value, or the value itself if no attribute is given.
Value key_of(const FilterCall& call, const Value& one, const std::optional<Value>& path, bool case_sensitive) {
  const bool whole = !path || path->is<None>();
  return without_case(whole ? one : value_at_path(one, *path, call.budget), case_sensitive);
}

/// Returns the sort keys as a list, because sort() accepts several attributes, separated by commas.
Value keys_of(const FilterCall& call, const Value& one, const std::optional<Value>& paths, bool case_sensitive) {
  std::vector<Value> keys;
  if (!paths || !paths->is_string()) return Value::list({key_of(call, one, paths, case_sensitive)});
  for (const auto& path : split_at(paths->text(), ","))
    keys.push_back(key_of(call, one, Value::string(path), case_sensitive));
  return Value::list(std::move(keys));
}

void sort_keyed(std::vector<Keyed>& all, bool reverse, Budget& budget) {
  std::stable_sort(all.begin(), all.end(), [&](const Keyed& x, const Keyed& y) {
    budget.charge(2);
    return reverse ? less(y.key, x.key, budget) : less(x.key, y.key, budget);
  });
}

std::vector<Value> values_of(std::vector<Keyed> all) {
  std::vector<Value> out;
  for (auto& one : all) out.push_back(std::move(one.value));
  return out;
}

}  // namespace

Value sorted_values(const FilterCall& call) {
  const bool reverse = is_given(call.arguments.take("reverse"));
  const bool case_sensitive = is_given(call.arguments.take("case_sensitive"));
  const auto paths = call.arguments.take("attribute");
  std::vector<Keyed> all;
  for (const auto& one : iterated(call.x, call.budget)) all.push_back({keys_of(call, one, paths, case_sensitive), one});
  sort_keyed(all, reverse, call.budget);
  return Value::list(values_of(std::move(all)));
}

/// Groups neighbours with equal keys.
std::vector<std::vector<Value>> runs_of_equal_keys(const std::vector<Keyed>& sorted, Budget& budget) {
  std::vector<std::vector<Value>> runs;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i == 0 || !equal(sorted[i - 1].key, sorted[i].key, budget)) runs.emplace_back();
    runs.back().push_back(sorted[i].value);
  }
  return runs;
}

Value grouped(const FilterCall& call) {
  const auto path = call.arguments.need("attribute", call.name);
  const auto given = call.arguments.take("default");
  const auto* otherwise = given && !given->is<None>() ? &*given : nullptr;
  const bool case_sensitive = is_given(call.arguments.take("case_sensitive"));
  const auto key = [&](const Value& one) { return value_at_path(one, path, call.budget, otherwise); };
  std::vector<Keyed> all;
  for (const auto& one : iterated(call.x, call.budget)) all.push_back({without_case(key(one), case_sensitive), one});
  sort_keyed(all, false, call.budget);
  std::vector<Value> groups;
  for (auto& group : runs_of_equal_keys(all, call.budget))
    groups.push_back(Value::list({key(group.front()), Value::list(std::move(group))}, SequenceType::kGroup));
  return Value::list(std::move(groups));
}

Value dict_sorted(const FilterCall& call) {
  const bool case_sensitive = is_given(call.arguments.take("case_sensitive"));
  const auto by = call.arguments.take("by");
  const auto column = by ? Arguments::text_of(*by, "by", call.name) : "key";
  EK_CHECK(column == "key" || column == "value", kData, "dictsort: by is ", column, ", allowed: key, value");
  const bool reverse = is_given(call.arguments.take("reverse"));
  EK_CHECK(call.x.is_dict(), kData, call.name, " of ", call.x.kind(), ", expected a dict");
  std::vector<Keyed> all;
  for (const auto& [key, value] : call.x.entries().entries)
    all.push_back(
        {without_case(column == "key" ? key : value, case_sensitive), Value::list({key, value}, SequenceType::kTuple)});
  sort_keyed(all, reverse, call.budget);
  return Value::list(values_of(std::move(all)));
}

Value unique_items(const FilterCall& call) {
  const bool case_sensitive = is_given(call.arguments.take("case_sensitive"));
  const auto path = call.arguments.take("attribute");
  std::vector<Value> out, keys;
  for (const auto& one : iterated(call.x, call.budget)) {
    auto key = key_of(call, one, path, case_sensitive);
    EK_CHECK(can_be_key(key, call.budget) || key.is<Undefined>(), kData, "unique of a list with ", key.kind());
    call.budget.charge(keys.size());
    const auto same = [&](const Value& other) { return equal(key, other, call.budget); };
    if (std::any_of(keys.begin(), keys.end(), same)) continue;
    keys.push_back(std::move(key));
    out.push_back(one);
  }
  return Value::list(std::move(out), SequenceType::kGenerator);
}

Value least_or_greatest(const FilterCall& call) {
  const bool case_sensitive = is_given(call.arguments.take("case_sensitive"));
  const auto path = call.arguments.take("attribute");
  const auto items = iterated(call.x, call.budget);
  if (items.empty()) return Value::undefined("item");
  Keyed best{key_of(call, items.front(), path, case_sensitive), items.front()};
  for (size_t i = 1; i < items.size(); ++i) {
    auto key = key_of(call, items[i], path, case_sensitive);
    const bool is_better = call.name == "min" ? less(key, best.key, call.budget) : less(best.key, key, call.budget);
    if (is_better) best = {std::move(key), items[i]};
  }
  return best.value;
}

}  // namespace evenkeel::jinja
