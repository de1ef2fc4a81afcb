#include "data/json_lines.h"

#include <algorithm>

#include "base/format/limits.h"
#include "base/plain/json.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Tracks the nesting of a JSON text byte by byte.
class Nesting {
 public:
  void add(char c) {
    if (quoted_) {
      if (!escaped_ && c == '"') quoted_ = false;
      escaped_ = !escaped_ && c == '\\';
      return;
    }
    if (c == '"') quoted_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') --depth_;
  }
  bool open() const { return quoted_ || depth_ > 0; }

 private:
  int64_t depth_ = 0;
  bool quoted_ = false, escaped_ = false;
};

bool is_json(std::string_view text) {
  try {
    parse_json(text, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Returns the end of the first line of `text` at which the value that begins there is closed.
std::optional<size_t> end_of_value(std::string_view text) {
  const size_t most = std::min(text.size(), static_cast<size_t>(limits::kLine));
  Nesting nesting;
  for (size_t i = 0; i < most; ++i) {
    if (text[i] == '\n' && !nesting.open()) return i;
    nesting.add(text[i]);
  }
  return most == text.size() && !nesting.open() ? std::optional(most) : std::nullopt;
}

}  // namespace

JsonLines::JsonLines(std::string_view text) : rest_(text) {
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

std::optional<JsonLine> JsonLines::next() {
  while (!rest_.empty()) {
    const auto from = rest_, line = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(rest_.size(), line.size() + 1));
    ++number_;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (looks_ahead_ && is_open_json(line))
      if (const auto whole = over_lines(from)) return whole;
    return JsonLine{line, number_, number_};
  }
  return std::nullopt;
}

/// \param from  the text from the current line on, whose value does not end on that line
std::optional<JsonLine> JsonLines::over_lines(std::string_view from) {
  const auto end = end_of_value(from);
  looks_ahead_ = end && is_json(from.substr(0, *end));
  if (!looks_ahead_) return std::nullopt;
  const JsonLine whole{from.substr(0, *end), number_,
                       number_ + std::count(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(*end), '\n')};
  rest_ = from.substr(std::min(from.size(), *end + 1));
  number_ = whole.last;
  return whole;
}

bool is_open_json(std::string_view text) {
  Nesting nesting;
  for (const char c : text) nesting.add(c);
  return nesting.open();
}

void check_line_ends(const JsonLine& line, std::string_view place) {
  EK_CHECK(line.last == line.first, kData, place, ": one JSON object per line; this one goes on over lines ",
           line.first, " to ", line.last, ": write it on one line (jq -c . FILE), or a list of rows into a .json file");
  EK_CHECK(!is_open_json(line.text), kData, place,
           ": not valid JSON: the line ends within a value; allowed is one JSON object per line");
}

}  // namespace evenkeel::data
