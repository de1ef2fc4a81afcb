#include "base/plain/hub_name.h"

#include <algorithm>
#include <cctype>

namespace evenkeel {
namespace {

constexpr size_t kLongestName = 96;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_hub_part(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && is_word(text.front()) && is_word(text.back()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == '-' || c == '.'; });
}

}  // namespace

bool is_hub_name(std::string_view text) {
  if (text.find("--") != text.npos || text.find("..") != text.npos || text.ends_with(".git")) return false;
  const auto slash = text.find('/');
  if (slash == text.npos) return is_hub_part(text);
  return is_hub_part(text.substr(0, slash)) && is_hub_part(text.substr(slash + 1));
}

}  // namespace evenkeel
