#include "data/row_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <optional>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/text.h"
#include "data/conversations.h"
#include "data/file_identity.h"
#include "data/json_lines.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";  // byte order mark
constexpr std::string_view kWhite = " \t\r\n";

bool is_blank(std::string_view text) { return text.find_first_not_of(kWhite) == text.npos; }

constexpr std::string_view kChatRemedy = "the template chat (data.template = \"chat\", --template chat)";

// --- one row ---

RowFormat format_of(const JsonView& row) {
  const auto has = [&](std::string_view key) { return row.has(key); };
  if (has("messages")) return RowFormat::kMessages;
  if (has("conversations")) return RowFormat::kShareGpt;
  if (has("prompt") && has("completion")) return RowFormat::kPromptCompletion;
  if (has("instruction") && has("output")) return RowFormat::kAlpaca;
  if (has("instruction") && has("response")) return RowFormat::kDolly;
  if (has("text")) return RowFormat::kText;
  std::vector<std::string> keys;
  for (const auto& member : row.members()) keys.push_back(shown(member.key()));
  row.refuse(": its keys (", join(keys),
             ") are of no format, allowed: instruction and output (alpaca), instruction and ",
             "response (dolly), messages, conversations (sharegpt), prompt and completion, text");
}

const std::string& nonblank(const JsonView& text) {
  text.require(!is_blank(text.string()), " is empty");
  return text.string();
}

bool calls_tools(const Turn& turn) {
  if (!turn.message.is_dict()) return false;
  const auto& keys = turn.message.entries();
  const auto is_true = [&](std::string_view key) { return keys.find(key) != nullptr && keys.find(key)->truth(); };
  return is_true("tool_calls") || is_true("function_call");
}

/// \param messages  the source of the turns, for error messages
void check_answers(const JsonView& messages, std::span<const Turn> turns) {
  for (size_t i = 0; i < turns.size(); ++i)
    messages.require(turns[i].role != "assistant" || !is_blank(turns[i].content) || calls_tools(turns[i]), "[", i,
                     "] of the assistant is empty");
}

/// Checks a training conversation.
void check_conversation(const JsonView& messages, std::span<const Turn> turns) {
  const auto any = [&](const auto& is) { return std::any_of(turns.begin(), turns.end(), is); };
  messages.require(any([](const Turn& turn) { return turn.role == "user" && !is_blank(turn.content); }),
                   ": nothing is asked, no message is a user's");
  messages.require(turns.back().role == "assistant", ": the last message is of \"", shown(turns.back().role),
                   "\", expected one of the assistant");
  check_answers(messages, turns);
  messages.require(any([](const Turn& turn) { return turn.role == "assistant" && turn.is_target; }),
                   ": every answer has the weight 0, nothing is left to learn from");
}

/// Checks that a template without turns can render the roles.
void check_roles(const JsonView& messages, std::span<const Turn> turns) {
  for (size_t i = 0; i < turns.size(); ++i) {
    const auto& who = turns[i].role;
    messages.require(who == "user" || who == "assistant" || who == "system", "[", i, "].role is \"", shown(who),
                     "\", allowed: system, user, assistant; other roles go with ", kChatRemedy);
    messages.require(i == 0 || who != "system", "[", i,
                     "].role is \"system\", allowed in front of all others, or with ", kChatRemedy);
  }
}

/// Moves the question and answer of a conversation to instruction and output, for templates without turns.
void flatten(const JsonView& json, Row& row) {
  auto& turns = row.turns;
  const bool system = turns.front().role == "system";
  const size_t count = turns.size() - (system ? 1 : 0);
  EK_CHECK(count == 2 && turns[system].role == "user", kConfig, json.place(), ": a conversation of ", count,
           " turns, which ", kChatRemedy, " writes; other templates write one question and its answer");
  row.instruction = turns[system].content;
  if (system) row.instruction = concat(turns[0].content, "\n\n", row.instruction);
  turns.clear();
}

/// Appends turns. Answers in a prompt are not targets.
void append_turns(std::vector<Turn> more, bool is_prompt, std::vector<Turn>& turns) {
  for (auto& turn : more) {
    turn.is_target = turn.is_target && !(is_prompt && turn.role == "assistant");
    turns.push_back(std::move(turn));
  }
}

std::string without_white_around(const std::string& text) {
  const auto first = text.find_first_not_of(kWhite);
  return text.substr(first, text.find_last_not_of(kWhite) - first + 1);
}

class RowReader {
 public:
  explicit RowReader(const FileRows& what) : what_(what) {}

  Row read(const SourceRow& source, RowFormat format) const {
    const auto& json = source.view();
    Row row = of_format(source, format);
    row.references = {row.answer};
    json.require(!what_.compared || !is_blank(row.answer),
                 ": its answer has no text to compare with; score = \"nll\" asks how likely it is");
    if (what_.choices) add_options(json, row);
    row.label = label_of(json);
    row.is_required = what_.strict;
    if (what_.compared) row.origin = json.place();
    return row;
  }

 private:
  Row of_format(const SourceRow& source, RowFormat format) const {
    const auto& json = source.view();
    if (format == RowFormat::kMessages) return of_messages(source, {"messages"});
    if (format == RowFormat::kShareGpt) return of_messages(source, {"conversations"});
    if (format == RowFormat::kPromptCompletion && json.at("prompt").json().is_array())
      return of_messages(source, {"prompt", "completion"});
    if (format == RowFormat::kAlpaca && (is_given(json, "history") || is_given(json, "system")))
      return of_history(json);  // keys of LLaMA-Factory
    if (format == RowFormat::kText) return of_text(json);
    return of_texts(json, format);
  }

  static bool is_given(const JsonView& json, std::string_view key) {
    const auto value = json.find(key);
    return value && !value->json().empty() && value->json() != "";
  }

  MessageKeys keys() const { return what_.conversations ? MessageKeys::kAll : MessageKeys::kTextAlone; }

  /// \param lists  keys of consecutive lists of messages; all lists but the last are the prompt
  Row of_messages(const SourceRow& source, std::initializer_list<std::string_view> lists) const {
    Row row;
    const auto& json = source.view();
    const auto& list = *(lists.end() - 1);
    const std::string system = list == "conversations" ? json.string_or("system", "") : "";
    if (!system.empty()) row.turns.push_back({"system", system});
    for (const auto& key : lists) append_turns(read_turns(source, key, keys()), key != list, row.turns);
    read_variables(source, keys(), row);
    return finished(json, json.at(list), std::move(row));
  }

  Row finished(const JsonView& json, const JsonView& messages, Row row) const {
    check_conversation(messages, row.turns);
    row.answer = row.output = row.turns.back().content;
    if (what_.conversations) return row;
    check_roles(messages, row.turns);
    flatten(json, row);
    return row;
  }

  /// Reads a row with a system message or earlier pairs of question and answer.
  Row of_history(const JsonView& json) const {
    Row row;
    const auto system = json.string_or("system", "");
    if (!what_.conversations && !is_given(json, "history")) {
      row = of_texts(json, RowFormat::kAlpaca);
      row.instruction = concat(system, "\n\n", row.instruction);
      return row;
    }
    if (!system.empty()) row.turns.push_back({"system", system});
    if (is_given(json, "history"))
      for (const auto& pair : json.at("history").items()) {
        pair.require(pair.list().size() == 2, " has ", pair.size(), " texts, expected a question and its answer");
        row.turns.push_back({"user", pair.at(0).string()});
        row.turns.push_back({"assistant", nonblank(pair.at(1))});
      }
    const auto last = of_texts(json, RowFormat::kAlpaca);
    const bool both = !last.instruction.empty() && !last.input.empty();
    row.turns.push_back({"user", concat(last.instruction, both ? "\n\n" : "", last.input)});
    row.turns.push_back({"assistant", last.output});
    return finished(json, json, std::move(row));
  }

  Row of_text(const JsonView& json) const {
    Row row;
    row.answer = row.output = nonblank(json.at("text"));
    json.require(what_.texts, ": a text asks nothing, allowed: with the template plain (data.template = \"plain\", ",
                 "--template plain), which puts nothing around it");
    json.require(!what_.compared, ": a text asks nothing, allowed: score = \"nll\", which tells how likely it is");
    return row;
  }

  static Row of_texts(const JsonView& json, RowFormat format) {
    const bool alpaca = format == RowFormat::kAlpaca, prompt = format == RowFormat::kPromptCompletion;
    Row row;
    const auto question = json.at(prompt ? "prompt" : "instruction");
    row.instruction = question.string();
    if (!prompt) row.input = json.string_or(alpaca ? "input" : "context", "");
    question.require(!is_blank(row.instruction) || !is_blank(row.input), " is empty");
    row.answer = row.output = nonblank(json.at(prompt ? "completion" : alpaca ? "output" : "response"));
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
    row.answer = without_white_around(json.has("answer") ? nonblank(json.at("answer")) : row.answer);
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

/// Returns "a.jsonl:17: ..." without the kind "[data]" in front.
std::string bare(const Error& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(text.find("] ") + 2));
}

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
    add_list(parse_json(text, file_), [&] { return parse_json<OrderedJson>(text, file_); });
  }

  /// \param in_order  parses the list again with ordered keys; called at most once
  void add_list(const Json& list, const std::function<OrderedJson()>& in_order) {
    std::optional<OrderedJson> ordered;
    for (size_t i = 0; i < list.size(); ++i)
      take([&] {
        add({JsonView(list[i], concat(file_, ": row ", i)), [&] {
               if (!ordered) ordered = in_order();
               return ordered->at(i);
             }});
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
    if (whole.contains("data") && whole["data"].is_array()) {
      add_list(whole["data"], [&] { return parse_json<OrderedJson>(text, file_).at("data"); });
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
    const Json row = parse_json(text, origin);
    add({JsonView(row, origin), [&] { return parse_json<OrderedJson>(text, origin); }});
  }

  void add(const SourceRow& row) {
    if (!format_) format_ = what_.format == RowFormat::kAuto ? format_of(row.view()) : what_.format;
    set_.rows.push_back(reader_.read(row, *format_));
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
  std::shared_ptr<const std::string> name_;
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
  std::sort(files.begin(), files.end());  // sorts by bytes, because the library's order depends on the locale
  return files;
}

}  // namespace

void append(TaskRows part, TaskRows& all) {
  std::move(part.rows.begin(), part.rows.end(), std::back_inserter(all.rows));
  all.files.insert(all.files.end(), part.files.begin(), part.files.end());
  all.left_out += part.left_out;
  std::move(part.held_out.begin(), part.held_out.end(), std::back_inserter(all.held_out));
  for (const auto member : {&TaskRows::note, &TaskRows::read})
    if (!(part.*member).empty()) all.*member += concat((all.*member).empty() ? "" : "; ", part.*member);
}

std::vector<std::string> found_files(std::span<const std::string> patterns) {
  std::vector<std::string> all;
  KnownFiles known;
  for (const auto& pattern : patterns) {
    check_path_text(pattern, "a file of rows");
    const bool as_it_is = !is_glob(pattern) || path_exists(pattern);
    EK_CHECK(!as_it_is || path_exists(pattern), kIo, pattern, " is not there");
    for (auto& file : as_it_is ? std::vector{pattern} : matches(pattern))
      if (known.add(file)) all.push_back(std::move(file));
  }
  return all;
}

std::vector<std::string> with_files_of_folders(std::span<const std::string> paths) {
  std::vector<std::string> all;
  for (const auto& path : paths) {
    check_path_text(path, "a file of rows");
    if (!is_folder(path)) {
      all.push_back(path);
      continue;
    }
    const size_t before = all.size();
    const auto entries = entries_of(path);
    for (const auto* extension : {".jsonl", ".json"})
      for (const auto& entry : entries)
        if (entry.extension() == extension && is_file(entry)) all.push_back(entry.string());
    EK_CHECK(all.size() > before, kData, path, ": a folder without files of rows, *.jsonl or *.json");
  }
  return all;
}

TaskRows file_rows(const FileRows& what) {
  TaskRows set;
  KnownFiles read;
  for (auto& file : found_files(what.patterns)) {
    if (const auto same = read.with_content_of(file))
      append({.rows = {}, .note = concat(file, " is a copy of ", *same, ": its rows count twice")}, set);
    read.add(file);
    FileReader(what, std::move(file), set).read();
  }
  return set;
}

}  // namespace evenkeel::data
