/// \file  Lists the values of a config by full key. ValueLister is the third visitor of a struct, beside Reader and
/// Writer (base/format/config_table.h).
///
/// Example:  config::values(optimizer) is {{"betas", "[0.9, 0.95]"}, {"lr", "2e-04"}}
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"
#include "base/format/config_text.h"

namespace evenkeel::config {

/// TOML values by full key: "data.limit", "data.files.NAME.train", "clients.client[0].budget". Empty optionals have no
/// key.
using Values = std::map<std::string, std::string>;

/// Lists the fields of a struct; the `field` argument of visit().
class ValueLister {
 public:
  /// \param path  full key of the struct; empty: the root
  explicit ValueLister(Values& values, std::string path = {}) : values_(values), path_(std::move(path)) {}

  template <typename T>
  void operator()(std::string_view key, const T& value, std::string_view /*help*/) {
    if constexpr (NamedEnum<T>)
      add(key, toml_text(std::string(name_of(value))));
    else if constexpr (ListOrTable<T>)
      value.listed() ? add(key, toml_text(value.list)) : nested(key, value);
    else if constexpr (requires(T & s, ValueLister & lister) { s.visit(lister); })
      nested(key, value);
    else if constexpr (std::is_same_v<T, Names>)
      add(key, value.size() == 1 ? toml_text(value.front()) : toml_text(std::vector<std::string>(value)));
    else
      add(key, toml_text(value));
  }
  template <typename T>
  void operator()(std::string_view key, const std::optional<T>& value, std::string_view help) {
    if (value) (*this)(key, *value, help);
  }
  template <typename S>
  requires requires(S& s, ValueLister& lister) { s.visit(lister); }
  void operator()(std::string_view key, const std::vector<S>& values, std::string_view /*help*/) {
    for (size_t i = 0; i < values.size(); ++i) nested(concat(key, "[", i, "]"), values[i]);
  }
  /// Lists every entry of `values`.
  template <typename S>
  void tables(const std::map<std::string, S>& values, const S& /*defaults*/) {
    for (const auto& [key, value] : values) nested(key, value);
  }
  /// Lists the fields of a struct under `key`.
  template <typename S>
  void nested(std::string_view key, S value) {
    ValueLister inner(values_, full_key(key));
    value.visit(inner);
  }

 private:
  void add(std::string_view key, std::string value) { values_[full_key(key)] = std::move(value); }
  std::string full_key(std::string_view key) const {
    return path_.empty() ? std::string(key) : concat(path_, ".", key);
  }

  Values& values_;
  std::string path_;
};

/// Returns the values of a struct with visit().
template <typename S>
Values values(S value) {
  Values all;
  ValueLister lister(all);
  value.visit(lister);
  return all;
}

}  // namespace evenkeel::config
