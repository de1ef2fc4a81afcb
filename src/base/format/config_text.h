/// \file  Formats values of a config as TOML. Writer and ValueLister write every value by these functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::config {

/// Quotes a text for TOML.
std::string quote(std::string_view text);
/// Return a value as TOML. A number is the shortest text that reads back equal.
std::string toml_text(int64_t value);
std::string toml_text(double value);
std::string toml_text(bool value);
std::string toml_text(const std::string& value);
std::string toml_text(const std::vector<int64_t>& values);
std::string toml_text(const std::vector<double>& values);
std::string toml_text(const std::vector<std::string>& values);

}  // namespace evenkeel::config
