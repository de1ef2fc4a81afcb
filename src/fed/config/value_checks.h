/// \file  Checks config values, for several sections.
#pragma once

#include <string>
#include <string_view>

#include "base/format/config_table.h"
#include "fed/config/per_client.h"

namespace evenkeel::fed {

/// Returns `text` between double quotes, for messages.
inline std::string in_quotes(std::string_view text) { return concat("\"", text, "\""); }

/// Calls `check(table, key, number)` for each number of `key`. `table` and `key` locate the list, or the `values` of
/// the pattern (fed/config/per_client.h), for error messages.
template <typename T, typename Check>
void check_each(const config::Table& table, std::string_view key, const PerClient<T>& numbers, const Check& check) {
  const auto place = numbers.listed() ? table : table.table(key);
  for (const T& number : numbers.numbers()) check(place, numbers.listed() ? key : "values", number);
}

}  // namespace evenkeel::fed
