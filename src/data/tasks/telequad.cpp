// TeleQuAD v4, extractive questions on telecom documents. Gebre et al., "TeleQuAD", EricssonResearch/TeleQuAD on
// GitHub, extractive/v4, CC BY-ND 4.0. Format: data[] { docid, source, paragraphs[] { context, qas[] { id, question,
// is_impossible, answers[] { text, answer_start } } } }; other fields are ignored. Offsets count Unicode code points.
#include <algorithm>
#include <array>
#include <map>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/plain/text.h"
#include "base/random/random.h"
#include "data/tasks.h"
#include "data/tasks/family.h"

namespace evenkeel::data {
namespace {

constexpr std::string_view kFile = "TeleQuAD-v4-full.json";
constexpr std::string_view kUnanswerable = "unanswerable";
constexpr int64_t kLastTraining = 137, kFirstTest = 139, kLastTest = 272;

struct Entry {
  Row row;  ///< the label is set at the end
  std::string id, docid, source;
};

// --- reading ---

/// Returns the byte offset of code point number `count`, or npos beyond the end.
size_t byte_of(std::string_view text, int64_t count) {
  for (size_t at = 0; at < text.size(); ++at) {
    const bool starts = (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
    if (starts && count-- == 0) return at;
  }
  return std::string_view::npos;
}

/// Compares the text with the context. The file writes some line ends of a context as spaces in the answer.
bool matches_at(std::string_view context, size_t at, std::string_view text) {
  if (at > context.size() || text.size() > context.size() - at) return false;
  return std::equal(text.begin(), text.end(), context.begin() + static_cast<int64_t>(at),
                    [](char answer, char there) { return answer == there || (answer == ' ' && there == '\n'); });
}

std::string without_trailing_space(std::string text) {
  text.resize(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

/// Adds one annotator's answer. Empty answers of the second annotator are ignored.
void add_answer(const JsonView& answer, Row& row) {
  const auto& text = answer.at("text").string();
  const auto start = answer.at("answer_start");
  const int64_t code_point = start.integer();
  if (text.empty()) return;
  const size_t at = code_point < 0 ? std::string_view::npos : byte_of(row.input, code_point);
  answer.require(matches_at(row.input, at, text), ": the context does not say \"", shown(text), "\" at answer_start ",
                 code_point);
  if (row.references.empty()) row.answer_at = static_cast<int64_t>(at);
  row.references.push_back(without_trailing_space(text));
}

/// Reads a question without its document. \return whether the question is used
bool read_question(const JsonView& json, bool impossible, Entry& question) {
  auto& row = question.row;
  question.id = json.at("id").string();
  row.instruction = json.at("question").string();
  const auto answers = json.at("answers").items();
  if (!json.at("is_impossible").flag()) {
    for (const auto& answer : answers) add_answer(answer, row);
    json.require(!row.references.empty(), " has no answer, and is_impossible is false");
  } else if (!impossible) {
    return false;
  } else {
    row.references.emplace_back(kUnanswerable);  // the file's spans for impossible questions are implausible answers
  }
  row.output = row.answer = row.references.front();
  return true;
}

/// \param count  number of questions before this paragraph; it is raised by those of the paragraph
void read_paragraph(const JsonView& json, const Entry& document, bool impossible, int64_t& count,
                    std::vector<Entry>& questions) {
  const auto context = json.at("context");
  context.require(!context.string().empty(), " is empty");
  for (const auto& item : json.at("qas").items()) {
    Entry question = document;
    question.row.input = context.string();
    question.row.place.row = count++;
    if (read_question(item, impossible, question)) questions.push_back(std::move(question));
  }
}

std::vector<Entry> read_questions(const std::filesystem::path& file, bool impossible) {
  const Json json = load_json(file);
  std::vector<Entry> questions;
  int64_t count = 0;
  const auto name = std::make_shared<const std::string>(file.string());
  for (const auto& document : JsonView(json, file.string()).at("data").items()) {
    Entry unasked;
    unasked.row.place.file = name;
    unasked.docid = document.at("docid").string();
    unasked.source = document.at("source").string();
    for (const auto& paragraph : document.at("paragraphs").items())
      read_paragraph(paragraph, unasked, impossible, count, questions);
  }
  return questions;
}

// --- splitting and grouping ---

/// Returns the spec of a source "3GPP-Specs#<spec>-<version>[#<section>]". For a page the source is its address, which
/// is returned.
std::string spec_of(const std::string& source) {
  const auto first = source.find('#');
  return first == source.npos ? source : source.substr(0, source.find('#', first + 1));
}

constexpr std::array<std::string_view, 4> kLabelKeys = {"label", "spec", "source", "docid"};

std::string label_of(const Entry& question, std::string_view key) {
  const bool known = std::find(kLabelKeys.begin(), kLabelKeys.end(), key) != kLabelKeys.end();
  EK_CHECK(known, kConfig, "telequad: rows cannot be grouped by \"", key, "\", allowed: ", join(kLabelKeys));
  if (key == "docid") return question.docid;
  return key == "source" ? question.source : spec_of(question.source);
}

enum class Side { kTraining, kTest, kNeither };

Side side_by_order(const Entry& question) {
  const auto parsed = parse_number<int64_t>(question.docid);
  EK_CHECK(parsed, kData, "telequad: docid \"", question.docid,
           "\" is not a number, which data.telequad.split = \"order\" goes by");
  const int64_t number = *parsed;
  if (number <= kLastTraining) return Side::kTraining;
  return number >= kFirstTest && number <= kLastTest ? Side::kTest : Side::kNeither;
}

/// Returns the group of a question: a random split keeps groups together.
std::string group_of(const Entry& question, TelequadSplit split) {
  if (split == TelequadSplit::kQuestions) return question.id;
  return split == TelequadSplit::kSpecs ? spec_of(question.source) : question.docid;
}

/// Assigns groups in random order. A group is for training if it still fits into the share.
std::vector<Side> sides_at_random(std::span<const Entry> questions, const TelequadConfig& config) {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < questions.size(); ++i) groups[group_of(questions[i], config.split)].push_back(i);
  std::vector<const std::vector<size_t>*> order;
  for (const auto& [name, members] : groups) order.push_back(&members);
  RandomStream(static_cast<uint64_t>(config.split_seed), "telequad-split").shuffle(std::span(order));
  std::vector<Side> sides(questions.size(), Side::kTest);
  double capacity = config.train_share * static_cast<double>(questions.size()) + 0.5;
  for (const auto* members : order) {
    if (static_cast<double>(members->size()) > capacity) continue;
    capacity -= static_cast<double>(members->size());
    for (const size_t i : *members) sides[i] = Side::kTraining;
  }
  return sides;
}

std::vector<Side> sides_of(std::span<const Entry> questions, const TelequadConfig& config) {
  if (config.split != TelequadSplit::kOrder) return sides_at_random(questions, config);
  std::vector<Side> sides;
  for (const auto& question : questions) sides.push_back(side_by_order(question));
  return sides;
}

TaskRows side_rows(const RowOptions& options, Side side) {
  const auto file = options.path / kFile;
  auto questions = read_questions(file, options.telequad.impossible);
  const auto sides = sides_of(questions, options.telequad);
  TaskRows set;
  for (size_t i = 0; i < questions.size(); ++i) {
    if (side == Side::kTraining && sides[i] == Side::kTest) set.held_out.push_back(questions[i].row.place);
    if (sides[i] != side) continue;
    auto& question = questions[i];
    question.row.label = label_of(question, options.label);
    set.rows.push_back(std::move(question.row));
  }
  EK_CHECK(!set.rows.empty(), kData, file.string(), " holds no questions to ",
           side == Side::kTest ? "test with" : "train on", " by data.telequad.split = \"",
           config::name_of(options.telequad.split), "\"");
  return set;
}

std::vector<TaskInfo> telequad_tasks(const RowOptions&) {
  return {{.name = "telequad",
           .file = std::string(kFile),
           .answers = {},
           .source = "TeleQuAD v4, telecom questions with their documents (Gebre et al.)",
           .scoring = Scoring::kF1}};
}

TaskRows telequad_test_rows(const TaskInfo&, const RowOptions& from) { return side_rows(from, Side::kTest); }

TaskRows telequad_training_rows(const RowOptions& from) {
  auto set = side_rows(from, Side::kTraining);
  const auto file = from.path / kFile;
  set.files.push_back(file.string());
  if (file_state(file) != FileState::kExact)
    set.note = concat(file.string(), " is not the published file (its sha256 differs)");
  return set;
}

}  // namespace

TaskFamily telequad() {
  return {.name = "telequad",
          .tasks = telequad_tasks,
          .training_rows = telequad_training_rows,
          .test_rows = telequad_test_rows,
          .label_keys = {kLabelKeys.begin(), kLabelKeys.end()},
          .in_folder = true,
          .in_context = true};
}

}  // namespace evenkeel::data
