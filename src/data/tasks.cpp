// To add a family of tasks, write its file and add its name here and in tasks/family.h. Other programs call
// add_task_family().
#include "data/tasks.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/random/random.h"
#include "data/option_places.h"
#include "data/tasks/family.h"
#include "data/text_metrics.h"

namespace evenkeel::data {
namespace {

Row to_row(const JsonView& json) {
  const auto input = json.find("input");
  for (const char* key : {"instruction", "output", "answer"})
    json.at(key).require(json.at(key).string().find_first_not_of(" \t\r\n") != std::string::npos, " is empty");
  return {.instruction = json.at("instruction").string(),
          .input = input ? input->string() : "",
          .output = json.at("output").string(),
          .answer = json.at("answer").string(),
          .label = ""};
}

constexpr std::string_view kTestRows = "test-rows";

/// Returns the first `limit` indices of a random permutation of `count`, or all indices in order if `limit` is 0.
std::vector<int64_t> draw_indices(int64_t count, int64_t limit, std::string_view purpose, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (limit <= 0 || limit >= count) return order;
  order = RandomStream(seed, purpose).permutation(count);
  order.resize(static_cast<size_t>(limit));
  return order;
}

/// Numbers the rows of a family that does not say where they are from.
void number_rows(TaskRows& set) {
  for (size_t i = 0; i < set.rows.size(); ++i)
    if (set.rows[i].place.row < 0) set.rows[i].place.row = static_cast<int64_t>(i);
}

void keep(TaskRows& set, int64_t limit, std::string_view purpose, uint64_t seed) {
  const auto count = static_cast<int64_t>(set.rows.size());
  if (limit <= 0 || limit >= count) return;
  std::vector<Row> chosen;
  for (const int64_t i : draw_indices(count, limit, purpose, seed))
    chosen.push_back(std::move(set.rows[static_cast<size_t>(i)]));
  set.rows = std::move(chosen);
}

/// Returns the answers in the line of the text that has the last "Answer format: a/b/c"; none without it.
std::vector<std::string> answers_in_format(std::string_view text) {
  constexpr std::string_view kFormat = "Answer format:";
  const auto start = text.rfind(kFormat);
  if (start == text.npos) return {};
  auto rest = text.substr(start + kFormat.size());
  rest = rest.substr(0, rest.find('\n'));
  std::vector<std::string> answers;
  for (size_t cut = 0; cut != rest.npos; rest.remove_prefix(cut == rest.npos ? rest.size() : cut + 1)) {
    cut = rest.find('/');
    if (auto answer = strip(rest.substr(0, cut)); !answer.empty()) answers.push_back(std::move(answer));
  }
  return answers;
}

std::vector<TaskFamily>& table() {
  static std::vector<TaskFamily> rows{commonsense(),   telequad(),        builtin(),
                                      builtin_large(), builtin_changed(), files()};
  return rows;
}

std::vector<TaskInfo> tasks_of(const TaskFamily& family, const RowOptions& from) {
  auto all = family.tasks(from);
  for (auto& task : all) task.family = family.name;
  return all;
}

/// Returns the options for a family: if the given folder contains one named as the family, `path` is that folder.
RowOptions options_for(const TaskFamily& family, RowOptions options) {
  if (family.in_folder && is_folder(options.path / family.name)) options.path /= family.name;
  return options;
}

/// Returns up to `from.limit` test rows of each client, one client after the other.
TaskRows limited_rows_of_clients(const TaskInfo& task, const RowOptions& from) {
  TaskRows all;
  for (const auto& client : from.files.clients) {
    auto own = from;
    own.files.clients = {client};
    if (client.tests()) append(test_rows(task, own), all);
  }
  return all;
}

}  // namespace

std::span<const TaskFamily> task_families() { return table(); }

void add_task_family(const TaskFamily& family) {
  EK_CHECK(family.tasks && family.training_rows && family.test_rows, kInternal, "task family ", family.name,
           " lacks tasks, training_rows or test_rows");
  std::vector<std::string> existing;
  for (const auto& known : table()) existing.emplace_back(known.name);
  for (const auto& task : tasks()) existing.push_back(task.name);
  auto names = tasks_of(family, {});
  names.push_back({.name = std::string(family.name), .file = "", .answers = {}, .source = ""});
  for (const auto& task : names)
    EK_CHECK(std::find(existing.begin(), existing.end(), task.name) == existing.end(), kConfig, "task ", task.name,
             " is in the table already: choose another name");
  table().push_back(family);
}

const TaskFamily& find_task_family(std::string_view name) {
  for (const auto& family : table())
    if (family.name == name) return family;
  fail(kConfig, "data.task is \"", name, "\", allowed: ", join(families()));
}

std::vector<std::string_view> families() {
  std::vector<std::string_view> names;
  for (const auto& family : table()) names.push_back(family.name);
  return names;
}

std::vector<TaskInfo> tasks(const RowOptions& from) {
  std::vector<TaskInfo> all;
  for (const auto& family : table())
    for (auto& task : tasks_of(family, from)) all.push_back(std::move(task));
  return all;
}

TaskInfo find_task(std::string_view name, const RowOptions& from) {
  std::vector<std::string> known;
  for (auto& task : tasks(from)) {
    if (task.name == name) return std::move(task);
    known.push_back(std::move(task.name));
  }
  fail(kConfig, "task \"", name, "\" is not known; known: ", join(known));
}

std::vector<std::string> expand_tasks(std::span<const std::string> names, const RowOptions& from) {
  const auto known = tasks(from);
  std::vector<std::string> result;
  const auto add = [&](const std::string& name) {
    if (std::find(result.begin(), result.end(), name) == result.end()) result.push_back(name);
  };
  for (const auto& name : names) {
    const auto in_family = [&](const TaskInfo& task) { return task.family == name; };
    if (std::none_of(known.begin(), known.end(), in_family)) add(find_task(name, from).name);
    for (const auto& task : known)
      if (in_family(task) && (task.tests || task.name == name)) add(task.name);
  }
  return result;
}

std::vector<std::string_view> label_keys(std::string_view family) { return find_task_family(family).label_keys; }

std::vector<Row> load_rows(const std::filesystem::path& file) {
  const Json json = load_json(file);
  EK_CHECK(json.is_array(), kData, file.string(), " is not a JSON array of rows");
  std::vector<Row> rows;
  rows.reserve(json.size());
  const auto name = std::make_shared<const std::string>(file.string());
  for (const auto& row : json) {
    const auto index = static_cast<int64_t>(rows.size());
    rows.push_back(to_row(JsonView(row, concat(*name, ": row ", index))));
    rows.back().place = {name, index};
  }
  EK_CHECK(!rows.empty(), kData, file.string(), " holds no rows");
  return rows;
}

TaskRows test_rows(const TaskInfo& task, const RowOptions& from) {
  const auto& family = find_task_family(task.family);
  if (from.limit > 0 && from.files.clients.size() > 1 && task.family == "files")
    return limited_rows_of_clients(task, from);
  auto set = family.test_rows(task, options_for(family, from));
  number_rows(set);
  const auto count = static_cast<int64_t>(set.rows.size());
  if (from.limit > count)
    set.note += concat(set.note.empty() ? "" : "; ", task.name, " has ", count, " rows, ", from.limit,
                       " were asked for: all are scored");
  if (!family.generates)
    keep(set, from.limit, kTestRows, from.seed);
  else if (from.limit > 0 && from.limit < count)
    set.rows.erase(set.rows.begin() + from.limit, set.rows.end());
  return set;
}

std::vector<std::string> test_files(const TaskInfo& task, const RowOptions& from) {
  const auto& family = find_task_family(task.family);
  const auto options = options_for(family, from);
  if (family.test_files) return family.test_files(task, options);
  const auto file = options.path / task.file;
  return !task.file.empty() && path_exists(file) ? std::vector{file.string()} : std::vector<std::string>();
}

TaskRows training_rows(std::string_view name, const RowOptions& from) {
  const auto& family = find_task_family(name);
  auto set = family.training_rows(options_for(family, from));
  number_rows(set);
  if (!family.generates) keep(set, from.limit, "training-rows", from.seed);
  return set;
}

TaskRows training_rows(std::span<const std::string> families, const RowOptions& from) {
  if (families.size() == 1) return training_rows(families.front(), from);
  TaskRows all;
  auto without_limit = from;
  without_limit.limit = 0;
  for (const auto& name : families) append(training_rows(name, without_limit), all);
  keep(all, from.limit, "training-rows", from.seed);
  return all;
}

std::vector<std::string> row_answers(const TaskInfo& task, const Row& row) {
  if (!row.options.empty()) return row.options;
  auto answers = answers_in_format(row.instruction);
  return answers.empty() ? task.answers : answers;
}

std::string extract_answer(const TaskInfo& task, std::string_view text, bool lowercase) {
  const std::string searched = lowercase ? lower_case(text) : std::string(text);
  size_t first = std::string_view::npos;
  std::string found;
  for (const auto& answer : task.answers) {
    const auto at = searched.find(answer);
    if (at < first) first = at, found = answer;
  }
  return found;
}

std::string extract_answer(const TaskInfo& task, const Row& row, std::string_view text, bool lowercase) {
  if (row.options.empty()) return extract_answer(task, text, lowercase);
  auto options = row.options;
  for (auto& option : options)
    if (lowercase) option = lower_case(option);
  const auto found = first_option(options, lowercase ? lower_case(text) : std::string(text));
  return found ? row.options[found->option] : std::string();
}

double majority_rate(std::span<const Row> rows) {
  std::map<std::string_view, int64_t> counts;
  int64_t most = 0;
  for (const auto& row : rows) most = std::max(most, ++counts[row.answer]);
  return rows.empty() ? 0.0 : static_cast<double>(most) / static_cast<double>(rows.size());
}

double chance_rate(const TaskInfo& task, std::span<const Row> rows) {
  double sum = 0;
  for (const auto& row : rows) {
    const auto answers = row_answers(task, row).size();
    if (answers > 0) sum += 1.0 / static_cast<double>(answers);
  }
  return rows.empty() ? 0.0 : sum / static_cast<double>(rows.size());
}

}  // namespace evenkeel::data
