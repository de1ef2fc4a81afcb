// Renders the Jinja templates of a file, one JSON string a line, and prints of each {"text"} or {"refused"}.
#include <fstream>
#include <iostream>
#include <string>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "jinja/template.h"

namespace evenkeel {
namespace {

OrderedJson outcome(const std::string& line) {
  const Json json = parse_json(line, "the line");
  try {
    const jinja::Template made(JsonView(json, "the line").string(), "template");
    return {{"text", made.render({}).text}};
  } catch (const Error& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace
}  // namespace evenkeel

int main(int count, char** words) {
  if (count != 2) return 2;
  std::ifstream input(words[1], std::ios::binary);
  for (std::string line; std::getline(input, line);) std::cout << evenkeel::outcome(line).dump() << '\n';
  return input.bad() ? 1 : 0;
}
