#include "apps/input_lines.h"

#include <iostream>

#include "base/plain/files.h"

namespace evenkeel {
namespace {

/// What is done with a line, and with one that is bad.
struct LineUse {
  const std::function<void(const JsonView&)>& use;
  const std::function<void(const Error&)>& on_fault;

  /// \return whether the line held anything
  bool operator()(std::string_view line, const std::string& place) const {
    if (line.find_first_not_of(" \t\r") == line.npos) return false;
    try {
      const Json json = parse_json(line, place);
      use(JsonView(json, place));
    } catch (const Error& error) {
      if (!on_fault || error.kind() != kData) throw;
      on_fault(error);
    }
    return true;
  }
};

void for_each_of_stdin(const LineUse& use_line) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number)
    use_line(line, concat("standard input line ", number));
}

}  // namespace

void for_each_json_line(const std::string& file, const std::function<void(const JsonView&)>& use,
                        const std::function<void(const Error&)>& on_fault) {
  const LineUse use_line{use, on_fault};
  if (file == "-") return for_each_of_stdin(use_line);
  constexpr size_t kMostBytes = size_t{1} << 30;
  const std::string text = read_file(file, kMostBytes);
  std::string_view rest = text;
  bool any = false;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    any = use_line(line, concat(file, " line ", number)) || any;
  }
  EK_CHECK(any, kData, file, " holds no lines");
}

std::string RowFaults::note(const Error& error) {
  const std::string_view text = error.what();
  const auto bare = std::string(text.substr(text.find("] ") + 2));
  if (bad_++ == 0) first_ = bare;
  ++rows_;
  return bare;
}

void RowFaults::finish(std::string_view undone) const {
  EK_CHECK(bad_ == 0, kData, bad_, " of ", rows_, " rows could not be ", undone, "; the first: ", first_);
}

}  // namespace evenkeel
