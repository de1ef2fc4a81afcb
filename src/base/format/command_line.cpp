#include "base/format/command_line.h"

#include <algorithm>
#include <cctype>

namespace evenkeel {
namespace {

std::string& program_name() {
  static std::string name = "evenkeel";
  return name;
}

bool needs_no_quotes(char c) {
  constexpr std::string_view kOrdinary = "_@%+=:,./-";
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || kOrdinary.find(c) != kOrdinary.npos;
}

}  // namespace

void set_program_name(std::string_view name) {
  if (!name.empty()) program_name() = name;
}

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), needs_no_quotes)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string command_line(const std::vector<std::string>& words) {
  std::string line = shell_word(program_name());
  for (const auto& word : words) line += " " + shell_word(word);
  return line;
}

}  // namespace evenkeel
