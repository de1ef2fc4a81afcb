#include "data/row_files.h"

#include <glob.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace evenkeel {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";  // byte order
constexpr std::string_view kWhite = " \t\r\n";

bool is_blank(std::string_view text) { return text.find_first_not_of(kWhite) == text.npos; }

// --- one row ---

RowFormat format_of(const JsonView& row) {
  if (row.has("messages")) return RowFormat::kMessages;
  if (row.has("prompt") && row.has("completion")) return RowFormat::kPromptCompletion;
  if (row.has("instruction") && row.has("output")) return RowFormat::kAlpaca;
  std::vector<std::string> keys;
  for (const auto& member : row.members()) keys.push_back(shown(member.key()));
  row.refuse(": its keys (", join(keys), ") are of no format, allowed: instruction and output (alpaca), messages, ",
             "prompt and completion");
}

const std::string& said(const JsonView& text) {
  text.require(!is_blank(text.string()), " is empty");
  return text.string();
}

Turn turn_of(const JsonView& message, bool first) {
  const auto role = message.at("role"), content = message.at("content");
  const auto& who = role.string();
  role.require(who == "user" || who == "assistant" || who == "system", " is \"", shown(who),
               who == "tool" || who == "function" ? "\": conversations with tools are not read" : "\"",
               ", allowed: system, user, assistant");
  role.require(first || who != "system", " is \"system\", which is said before anything else or not at all");
  return {who, who == "assistant" ? said(content) : content.string()};
}

std::vector<Turn> conversation(const JsonView& messages) {
  std::vector<Turn> turns;
  bool asked = false;
  for (const auto& message : messages.items()) {
    turns.push_back(turn_of(message, turns.empty()));
    asked = asked || turns.back().role == "user";
  }
  messages.require(asked, ": nothing is asked, no message is a user's");
  messages.require(turns.back().role == "assistant", ": the last message is of \"", turns.back().role,
                   "\", expected one of the assistant");
  return turns;
}

/// A question and its answer, in the fields of a template that knows no turns.
void flatten(const JsonView& json, Row& row) {
  auto& turns = row.turns;
  const bool system = turns.front().role == "system";
  const size_t count = turns.size() - (system ? 1 : 0);
  EK_CHECK(count == 2 && turns[system].role == "user", kConfig, json.place(), ": a conversation of ", count,
           " turns, which data.template = \"chat\" writes; other templates write one question and its answer");
  row.instruction = turns[system].content;
  if (system) row.instruction = concat(turns[0].content, "\n\n", row.instruction);
  row.output = turns.back().content;
  turns.clear();
}

std::string without_white_around(const std::string& text) {
  const auto first = text.find_first_not_of(kWhite);
  return text.substr(first, text.find_last_not_of(kWhite) - first + 1);
}

class RowReader {
 public:
  explicit RowReader(const FileRows& what) : what_(what) {}

  Row read(const JsonView& json, RowFormat format) const {
    Row row = format == RowFormat::kMessages ? of_messages(json) : of_texts(json, format == RowFormat::kAlpaca);
    row.references = {row.answer};
    if (what_.choices) add_options(json, row);
    row.label = label_of(json);
    return row;
  }

 private:
  Row of_messages(const JsonView& json) const {
    Row row;
    row.turns = conversation(json.at("messages"));
    row.answer = row.turns.back().content;
    if (!what_.conversations) flatten(json, row);
    return row;
  }

  static Row of_texts(const JsonView& json, bool alpaca) {
    Row row;
    const auto question = json.at(alpaca ? "instruction" : "prompt");
    row.instruction = question.string();
    if (alpaca) row.input = json.string_or("input", "");
    question.require(!is_blank(row.instruction) || !is_blank(row.input), " is empty");
    row.answer = row.output = said(json.at(alpaca ? "output" : "completion"));
    return row;
  }

  void add_options(const JsonView& json, Row& row) const {
    const auto own = json.has("options") ? json.find("options") : json.find("choices");
    row.options = own ? own->strings() : what_.options;
    json.require(!row.options.empty(), ": no options, neither in the row nor in data.files.options");
    for (auto& option : row.options) {
      json.require(!is_blank(option), ": one of its options is empty");
      option = without_white_around(option);
    }
    row.answer = without_white_around(json.has("answer") ? said(json.at("answer")) : row.answer);
    const bool allowed = std::find(row.options.begin(), row.options.end(), row.answer) != row.options.end();
    json.require(allowed, ": the answer \"", shown(row.answer),
                 "\" is none of its options: ", shown(join(row.options)));
  }

  std::string label_of(const JsonView& json) const {
    if (what_.label_field.empty()) return what_.label;
    const auto label = json.at(what_.label_field);
    return label.json().is_string() ? label.string() : std::to_string(label.integer());
  }

  const FileRows& what_;
};

// --- one file ---

/// "[data] a.jsonl:17: ..." without its kind.
std::string bare(const Error& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(text.find("] ") + 2));
}

class FileReader {
 public:
  FileReader(const FileRows& what, std::string file, TaskRows& set)
      : what_(what), reader_(what), file_(std::move(file)), set_(set) {}

  void read() {
    const std::string text = read_file(file_, static_cast<size_t>(limits::kFile));
    auto rest = std::string_view(text);
    if (rest.starts_with(kMark)) rest.remove_prefix(kMark.size());
    const auto first = rest.find_first_not_of(kWhite);
    first != rest.npos&& rest[first] == '[' ? read_list(rest) : read_lines(rest);
    conclude();
  }

 private:
  void read_list(std::string_view text) {
    EK_CHECK(is_utf8(text), kData, file_, ": is not UTF-8");
    const Json list = parse_json(text, file_);
    for (const auto& row : list) take([&] { add(JsonView(row, concat(file_, ": row ", seen_ - 1))); });
  }

  void read_lines(std::string_view text) {
    for (int64_t number = 1; !text.empty(); ++number) {
      const auto line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (!is_blank(line)) take([&] { add_line(line, concat(file_, ":", number)); });
    }
  }

  void add_line(std::string_view line, const std::string& place) {
    EK_CHECK(line.size() <= static_cast<size_t>(limits::kLine), kData, place, ": ", line.size(),
             " bytes in one line, allowed: up to ", limits::kLine);
    EK_CHECK(is_utf8(line), kData, place, ": is not UTF-8");
    const Json row = parse_json(line, place);
    add(JsonView(row, place));
  }

  void add(const JsonView& row) {
    if (!format_) format_ = what_.format == RowFormat::kAuto ? format_of(row) : what_.format;
    set_.rows.push_back(reader_.read(row, *format_));
    ++kept_;
  }

  /// One row, which may be left out where `strict` is off.
  template <typename Add>
  void take(const Add& add_row) {
    ++seen_;
    EK_CHECK(static_cast<int64_t>(set_.rows.size()) < limits::kRows, kData, file_, ": more than ", limits::kRows,
             " rows, which is the most that is read");
    try {
      add_row();
    } catch (const Error& error) {
      if (what_.strict || error.kind() != kData) throw;
      if (first_fault_.empty()) first_fault_ = bare(error);
    }
  }

  void conclude() {
    EK_CHECK(seen_ > 0, kData, file_, " holds no rows");
    EK_CHECK(kept_ > 0, kData, "none of the ", seen_, " rows of ", file_, " can be read; the first: ", first_fault_);
    set_.files.push_back(file_);
    set_.read += concat(set_.read.empty() ? "" : ", ", kept_, " rows of ", file_, " (", config::name_of(*format_), ")");
    if (kept_ == seen_) return;
    set_.left_out += seen_ - kept_;
    set_.note += concat(set_.note.empty() ? "" : "; ", seen_ - kept_, " of ", seen_, " rows of ", file_,
                        " cannot be read and are left out; the first: ", first_fault_);
  }

  const FileRows& what_;
  RowReader reader_;
  std::string file_;
  TaskRows& set_;
  std::optional<RowFormat> format_;
  int64_t seen_ = 0, kept_ = 0;
  std::string first_fault_;
};

// --- which files ---

bool is_glob(std::string_view pattern) { return pattern.find_first_of("*?[") != pattern.npos; }

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
    if (is_file(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  EK_CHECK(status == 0 || status == GLOB_NOMATCH, kIo, pattern, ": cannot be searched for");
  EK_CHECK(!files.empty(), kData, pattern, " matches no file");
  std::sort(files.begin(), files.end());  // by bytes: what the library sorts by depends on the language
  return files;
}

}  // namespace

void append(TaskRows part, TaskRows& all) {
  std::move(part.rows.begin(), part.rows.end(), std::back_inserter(all.rows));
  all.files.insert(all.files.end(), part.files.begin(), part.files.end());
  all.left_out += part.left_out;
  for (const auto member : {&TaskRows::note, &TaskRows::read})
    if (!(part.*member).empty()) all.*member += concat((all.*member).empty() ? "" : "; ", part.*member);
}

std::vector<std::string> found_files(std::span<const std::string> patterns) {
  std::vector<std::string> all;
  for (const auto& pattern : patterns) {
    check_path_text(pattern, "a file of rows");
    const bool as_it_is = !is_glob(pattern) || path_exists(pattern);
    EK_CHECK(!as_it_is || path_exists(pattern), kIo, pattern, " is not there");
    for (auto& file : as_it_is ? std::vector{pattern} : matches(pattern))
      if (std::find(all.begin(), all.end(), file) == all.end()) all.push_back(std::move(file));
  }
  return all;
}

TaskRows file_rows(const FileRows& what) {
  TaskRows set;
  for (auto& file : found_files(what.patterns)) FileReader(what, std::move(file), set).read();
  return set;
}

}  // namespace evenkeel
