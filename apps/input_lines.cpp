#include "apps/input_lines.h"

#include "base/files.h"

namespace evenkeel {

void for_each_json_line(const std::string& file, const std::function<void(const JsonView&)>& use) {
  constexpr size_t kMostBytes = size_t{1} << 30;
  const std::string text = read_file(file, kMostBytes);
  std::string_view rest = text;
  bool any = false;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const auto place = concat(file, " line ", number);
    const Json json = parse_json(line, place);
    use(JsonView(json, place));
    any = true;
  }
  EK_CHECK(any, kData, file, " holds no lines");
}

}  // namespace evenkeel
