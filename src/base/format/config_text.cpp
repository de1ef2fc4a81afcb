#include "base/format/config_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/plain/error.h"

namespace evenkeel::config {
namespace {

template <typename T>
std::string list_text(const std::vector<T>& values) {
  std::vector<std::string> items;
  for (const auto& value : values) items.push_back(toml_text(value));
  return concat("[", join(items), "]");
}

}  // namespace

std::string quote(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (code < 0x20 || code == 0x7f) {
      constexpr std::string_view kHex = "0123456789abcdef";
      result += "\\u00";
      result += kHex[code >> 4];
      result += kHex[code & 15];
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string toml_text(int64_t value) { return std::to_string(value); }
std::string toml_text(bool value) { return value ? "true" : "false"; }
std::string toml_text(const std::string& value) { return quote(value); }

std::string toml_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string toml_text(const std::vector<int64_t>& values) { return list_text(values); }
std::string toml_text(const std::vector<double>& values) { return list_text(values); }
std::string toml_text(const std::vector<std::string>& values) { return list_text(values); }

}  // namespace evenkeel::config
