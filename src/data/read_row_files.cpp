// Implements file_rows() of data/row_files.h.
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/text.h"
#include "data/file_identity.h"
#include "data/json_lines.h"
#include "data/left_out_rows.h"
#include "data/other_files.h"
#include "data/row_reader.h"
#include "tokenizer/chat_template.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";  // byte order mark
constexpr std::string_view kWhite = " \t\r\n";

bool is_blank(std::string_view text) { return text.find_first_not_of(kWhite) == text.npos; }

constexpr std::string_view kAllowedFiles = "allowed: a list of rows, one row a line, or {\"data\": [a list of rows]}";

/// Returns true if the name says that a file has one JSON value per line.
bool is_named_lines(const fs::path& file) { return file.extension() == ".jsonl" || file.extension() == ".ndjson"; }

class FileReader {
 public:
  FileReader(const FileRows& what, std::string file, TaskRows& set)
      : what_(what),
        reader_(what),
        file_(std::move(file)),
        name_(std::make_shared<const std::string>(file_)),
        set_(set) {}

  void read() {
    const std::string text = read_file(file_, static_cast<size_t>(limits::kFile));
    check_is_json_text(text, file_);
    auto rest = std::string_view(text);
    if (rest.starts_with(kMark)) rest.remove_prefix(kMark.size());
    const auto first = rest.find_first_not_of(kWhite);
    if (first != rest.npos && rest[first] == '[')
      read_list(rest);
    else if (first == rest.npos || rest[first] != '{' || !read_object(rest))
      read_lines(rest);
    conclude();
  }

 private:
  void read_list(std::string_view text) {
    EK_CHECK(is_utf8(text), kData, file_, ": is not UTF-8");
    const Json list = parse_json(text, file_);
    check_is_not_table(list, file_);
    find_repeated_keys(text, list, "");
    add_list(list, [&] { return tokenizer::chat_json(text, file_); });
  }

  /// Notes the rows of a list in which a key stands twice. \param list  as of repeated_keys() \throws kData for such a
  /// key outside of the rows
  void find_repeated_keys(std::string_view text, const Json& whole, std::string_view list) {
    for (const auto& repeated : repeated_keys(text, whole, list)) {
      EK_CHECK(repeated.entry, kData, file_, ": ", repeated.text());
      repeated_.try_emplace(*repeated.entry, repeated.text());
    }
  }

  /// \param in_order  parses the list again with ordered keys; called at most once
  void add_list(const Json& list, const std::function<OrderedJson()>& in_order) {
    std::optional<OrderedJson> ordered;
    for (size_t i = 0; i < list.size(); ++i)
      take([&] {
        const auto repeated = repeated_.find(i);
        EK_CHECK(repeated == repeated_.end(), kData, file_, ": row ", i, ": ", repeated->second);
        add(list[i], concat(file_, ": row ", i), [&] {
          if (!ordered) ordered = in_order();
          return ordered->at(i);
        });
      });
  }

  /// Reads the file as one object, which may take several lines unless the file's name says otherwise. \return false if
  /// the file has to be read line by line
  bool read_object(std::string_view text) {
    const auto first = text.find_first_not_of(kWhite), end = std::min(text.find('\n', first), text.size());
    const bool over_lines = is_open_json(text.substr(0, end));
    if (over_lines && is_named_lines(file_)) return false;
    if (!over_lines && !is_blank(text.substr(end))) return false;
    if (text.size() > JsonLimits{}.bytes || !is_utf8(text)) return false;
    Json whole;
    try {
      whole = parse_json(text, file_);
    } catch (const Error&) {
      return false;  // reading line by line names the invalid line
    }
    check_is_not_table(whole, file_);
    if (whole.contains("data") && whole["data"].is_array()) {
      find_repeated_keys(text, whole, "data");
      add_list(whole["data"], [&] { return tokenizer::chat_json(text, file_).at("data"); });
      return true;
    }
    EK_CHECK(!over_lines, kData, file_, ": is one JSON object over several lines, ", kAllowedFiles);
    return false;
  }

  void read_lines(std::string_view text) {
    JsonLines lines(text);
    while (const auto line = lines.next()) take([&] { add_line(*line, concat(file_, ":", line->first)); });
  }

  void add_line(const JsonLine& line, const std::string& origin) {
    const auto text = line.text;
    EK_CHECK(text.size() <= static_cast<size_t>(limits::kLine), kData, origin, ": ", text.size(),
             " bytes in one line, allowed: up to ", limits::kLine);
    EK_CHECK(is_utf8(text), kData, origin, ": is not UTF-8");
    check_line_ends(line, origin);
    add(parse_json(text, origin, kData, {.unique_keys = true}), origin,
        [&] { return tokenizer::chat_json(text, origin); });
  }

  /// \param in_order  parses the row again with its keys in the order of the file
  void add(Json row, const std::string& origin, std::function<OrderedJson()> in_order) {
    if (row.is_object())
      for (const auto& key : what_.ignore) row.erase(key);
    const SourceRow source(JsonView(row, origin), std::move(in_order));
    if (!format_) format_ = what_.format == RowFormat::kAuto ? format_of(source.view()) : what_.format;
    set_.rows.push_back(reader_.read(source, *format_));
    set_.rows.back().place = {name_, seen_ - 1};
    ++kept_;
  }

  /// Reads one row. If `strict` is false, an invalid row is skipped.
  template <typename Add>
  void take(const Add& add_row) {
    ++seen_;
    EK_CHECK(static_cast<int64_t>(set_.rows.size()) < limits::kRows, kData, file_, ": more than ", limits::kRows,
             " rows, which is the most that is read");
    try {
      add_row();
    } catch (const Error& error) {
      left_out_.add(error, what_.strict);
    }
  }

  void conclude() {
    EK_CHECK(seen_ > 0, kData, file_, " holds no rows");
    EK_CHECK(kept_ > 0, kData, "none of the ", seen_, " rows of ", file_,
             " can be read; the first: ", left_out_.first_fault());
    if (what_.uncounted.contains(file_)) return;
    set_.files.push_back(file_);
    set_.read += concat(set_.read.empty() ? "" : ", ", kept_, " rows of ", file_, " (", config::name_of(*format_), ")");
    append({.rows = {},
            .note = left_out_.note(seen_, concat("of ", file_, " cannot be read")),
            .left_out = left_out_.count()},
           set_);
  }

  const FileRows& what_;
  RowReader reader_;
  std::string file_;
  std::shared_ptr<const std::string> name_;
  TaskRows& set_;
  std::optional<RowFormat> format_;
  std::map<size_t, std::string> repeated_;  // what is wrong with rows of a list that have a key twice
  int64_t seen_ = 0, kept_ = 0;
  LeftOutRows left_out_;
};

}  // namespace

TaskRows file_rows(const FileRows& what) {
  TaskRows set;
  KnownFiles read;
  for (auto& file : found_files(what.patterns)) {
    const bool is_counted = !what.uncounted.contains(file);
    if (const auto same = is_counted ? read.with_content_of(file) : std::nullopt)
      append({.rows = {}, .note = concat(file, " is a copy of ", *same, ": its rows count twice")}, set);
    if (is_counted) read.add(file);
    FileReader(what, std::move(file), set).read();
  }
  return set;
}

}  // namespace evenkeel::data
