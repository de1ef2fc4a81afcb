// Renders the Jinja templates of a file, one JSON string per line, and prints {"text"} or {"refused"} for each. An
// optional date after the file is the result of strftime_now.
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "jinja/date.h"
#include "jinja/template.h"

namespace evenkeel {
namespace {

OrderedJson outcome(const std::string& line, const std::vector<std::pair<std::string, jinja::Value>>& variables) {
  const Json json = parse_json(line, "the line");
  try {
    const jinja::Template made(JsonView(json, "the line").string(), "template");
    return {{"text", made.render(variables).text}};
  } catch (const Error& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace
}  // namespace evenkeel

int main(int count, char** words) {
  if (count != 2 && count != 3) return 2;
  std::optional<evenkeel::jinja::Date> date;
  std::vector<std::pair<std::string, evenkeel::jinja::Value>> variables;
  if (count == 3) {
    date = evenkeel::jinja::Date::read(words[2], "the date");
    variables.emplace_back("strftime_now", evenkeel::jinja::Value(evenkeel::jinja::Value::Held(
                                               evenkeel::jinja::Function{.name = "strftime_now", .date = &*date})));
  }
  std::ifstream input(words[1], std::ios::binary);
  for (std::string line; std::getline(input, line);) std::cout << evenkeel::outcome(line, variables).dump() << '\n';
  return input.bad() ? 1 : 0;
}
