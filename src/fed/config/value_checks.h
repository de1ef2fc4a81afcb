/// \file  Checks of config values that several sections share.
#pragma once

#include <string>
#include <string_view>

#include "base/format/config_table.h"
#include "fed/config/per_client.h"

namespace evenkeel {

/// Returns `text` between double quotes, for messages.
inline std::string in_quotes(std::string_view text) { return concat("\"", text, "\""); }

/// Calls `check(table, key, number)` for each number of `key`, with the table and key of the list or the pattern.
template <typename T, typename Check>
void check_each(const config::Table& table, std::string_view key, const PerClient<T>& numbers, const Check& check) {
  const auto place = numbers.listed() ? table : table.table(key);
  for (const T& number : numbers.numbers()) check(place, numbers.listed() ? key : "values", number);
}

}  // namespace evenkeel
