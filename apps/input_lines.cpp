#include "apps/input_lines.h"

#include <iostream>

#include "base/format/limits.h"
#include "base/plain/files.h"
#include "base/plain/read_line.h"
#include "data/json_lines.h"
#include "data/other_files.h"

namespace evenkeel::apps {
namespace {

/// The callbacks for a valid line and for an invalid one.
struct LineUse {
  const std::function<void(const JsonView&)>& use;
  const std::function<void(const Error&)>& on_fault;

  void operator()(const data::JsonLine& line, const std::string& place) const {
    try {
      data::check_line_ends(line, place);
      const Json json = parse_json(line.text, place);
      use(JsonView(json, place));
    } catch (const Error& error) {
      if (!on_fault || error.kind() != kData) throw;
      on_fault(error);
    }
  }
};

/// Reads the next line of standard input. \param place  of the line, for errors \return false at the end
bool read_stdin(std::string& line, const std::string& place) try {
  return read_line(std::cin, line, limits::kInput);
} catch (const Error& error) {
  throw error.with_context(place);
}

void for_each_of_stdin(const LineUse& use_line) {
  std::string line;
  for (int64_t number = 1;; ++number) {
    const auto place = concat("standard input line ", number);
    if (!read_stdin(line, place)) return;
    if (line.find_first_not_of(" \t\r") != line.npos) use_line({line, number, number}, place);
  }
}

}  // namespace

void for_each_json_line(const std::string& file, const std::function<void(const JsonView&)>& use,
                        const std::function<void(const Error&)>& on_fault) {
  const LineUse use_line{use, on_fault};
  if (file == "-") return for_each_of_stdin(use_line);
  const std::string text = read_file(file, limits::kInput);
  data::check_is_json_text(text, file);
  data::JsonLines lines(text);
  auto line = lines.next();
  EK_CHECK(line, kData, file, " holds no lines");
  for (; line; line = lines.next()) use_line(*line, concat(file, " line ", line->first));
}

std::string RowFaults::note(const Error& error) {
  const std::string_view text = error.what();
  const auto bare = std::string(text.substr(text.find("] ") + 2));
  if (bad_++ == 0) first_ = bare;
  ++rows_;
  return bare;
}

void RowFaults::finish(std::string_view done) const {
  EK_CHECK(bad_ == 0, kData, bad_, " of ", rows_, " rows could not be ", done, "; the first: ", first_);
}

}  // namespace evenkeel::apps
