// Compares values, and finds the keys of dicts, as Python does.
#include <algorithm>
#include <cmath>

#include "base/plain/error.h"
#include "jinja/budget.h"
#include "jinja/value.h"

namespace evenkeel::jinja {
namespace {

bool is_nan(const Value& x) { return x.is<double>() && std::isnan(x.real()); }

bool has_text(const Value& x) { return x.is_string() || x.is<SafeText>(); }
const std::string& text_in(const Value& x) { return x.is_string() ? x.text() : *x.as<SafeText>()->text; }

template <typename T>
bool same_held(const Value& x, const Value& y) {
  return *x.as<T>() == *y.as<T>();
}

bool equal_texts(const std::string& x, const std::string& y, Budget& budget) {
  if (x.size() != y.size()) return false;
  budget.charge_bytes(x.size());
  return x == y;
}

/// Compares values inside of lists or dicts.
bool equal_inside(const Value& x, const Value& y, Budget& budget) {
  budget.charge(1);
  return equal(x, y, budget);
}

bool equal_lists(const std::vector<Value>& x, const std::vector<Value>& y, Budget& budget) {
  const auto same = [&](const Value& a, const Value& b) { return equal_inside(a, b, budget); };
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
}

/// Compares lists lexicographically.
bool less_lists(const std::vector<Value>& x, const std::vector<Value>& y, Budget& budget) {
  const auto same = [&](const Value& a, const Value& b) { return equal_inside(a, b, budget); };
  const auto [left, right] = std::mismatch(x.begin(), x.end(), y.begin(), y.end(), same);
  return left == x.end() || right == y.end() ? x.size() < y.size() : less(*left, *right, budget);
}

bool equal_dicts(const Dict& x, const Dict& y, Budget& budget) {
  if (x.entries.size() != y.entries.size()) return false;
  return std::all_of(x.entries.begin(), x.entries.end(), [&](const auto& entry) {
    const auto* other = y.find(entry.first, budget);
    return other && equal_inside(entry.second, *other, budget);
  });
}

}  // namespace

const Value* Dict::find(const Value& key, Budget& budget) const {
  budget.charge(entries.size() / 8);
  if (key.is_string()) return find(key.text());
  if (!can_be_key(key, budget)) return nullptr;
  for (const auto& entry : entries)
    if (equal(entry.first, key, budget)) return &entry.second;
  return nullptr;
}

void Dict::put(Value key, Value value, Budget& budget) {
  budget.charge(entries.size());
  EK_CHECK(can_be_key(key, budget) && !is_nan(key), kData, key.kind(), " cannot be a key of a dict");
  const auto same =
      std::find_if(entries.begin(), entries.end(), [&](const auto& one) { return equal(one.first, key, budget); });
  if (same != entries.end())
    same->second = std::move(value);
  else
    entries.emplace_back(std::move(key), std::move(value));
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

bool can_be_key(const Value& value, Budget& budget) {
  if (!value.is_tuple()) return value.is_string() || value.is_number() || value.is<None>();
  budget.charge(value.items().size());
  return std::all_of(value.items().begin(), value.items().end(),
                     [&](const Value& item) { return can_be_key(item, budget); });
}

bool equal(const Value& x, const Value& y, Budget& budget) {
  if (x.is_sequence() && y.is_sequence() && !(x.is_list_or_tuple() && y.is_list_or_tuple()))
    EK_CHECK(x.is_list_or_tuple() || y.is_list_or_tuple(), kData,
             "to compare generators, ranges or views of dicts is not part of the subset");
  if (x.is_integer() && y.is_integer()) return x.whole() == y.whole();
  if (x.is_number() && y.is_number()) return !is_nan(x) && !is_nan(y) && compare_numbers(x, y) == 0;
  if (has_text(x) && has_text(y)) return equal_texts(text_in(x), text_in(y), budget);
  if (x.is_list_or_tuple() && y.is_list_or_tuple())
    return x.is_tuple() == y.is_tuple() && equal_lists(x.items(), y.items(), budget);
  if (x.is_dict() && y.is_dict()) return equal_dicts(x.entries(), y.entries(), budget);
  if (x.is<Namespace*>() && y.is<Namespace*>()) return same_held<Namespace*>(x, y);
  return (x.is<None>() && y.is<None>()) || (x.is<Undefined>() && y.is<Undefined>());
}

bool less(const Value& x, const Value& y, Budget& budget) {
  if (x.is_integer() && y.is_integer()) return x.whole() < y.whole();
  if (x.is_number() && y.is_number()) return !is_nan(x) && !is_nan(y) && compare_numbers(x, y) < 0;
  if (x.is_list_or_tuple() && y.is_list_or_tuple() && x.is_tuple() == y.is_tuple())
    return less_lists(x.items(), y.items(), budget);
  EK_CHECK(x.is_string() && y.is_string(), kData, x.kind(), " cannot be compared with ", y.kind());
  budget.charge_bytes(std::min(x.text().size(), y.text().size()));
  return x.text() < y.text();  // UTF-8 sorts like code points
}

}  // namespace evenkeel::jinja
