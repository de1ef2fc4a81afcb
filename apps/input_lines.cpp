#include "apps/input_lines.h"

#include <iostream>

#include "base/files.h"

namespace evenkeel {
namespace {

/// \return whether the line held anything
bool use_line(std::string_view line, const std::string& place, const std::function<void(const JsonView&)>& use) {
  if (line.find_first_not_of(" \t\r") == line.npos) return false;
  const Json json = parse_json(line, place);
  use(JsonView(json, place));
  return true;
}

void for_each_of_stdin(const std::function<void(const JsonView&)>& use) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number)
    use_line(line, concat("standard input line ", number), use);
}

}  // namespace

void for_each_json_line(const std::string& file, const std::function<void(const JsonView&)>& use) {
  if (file == "-") return for_each_of_stdin(use);
  constexpr size_t kMostBytes = size_t{1} << 30;
  const std::string text = read_file(file, kMostBytes);
  std::string_view rest = text;
  bool any = false;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    any = use_line(line, concat(file, " line ", number), use) || any;
  }
  EK_CHECK(any, kData, file, " holds no lines");
}

}  // namespace evenkeel
