#include "data/tasks.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "data/tasks/family.h"

namespace evenkeel {
namespace {

Row to_row(const JsonView& json) {
  const auto input = json.find("input");
  return {.instruction = json.at("instruction").string(),
          .input = input ? input->string() : "",
          .output = json.at("output").string(),
          .answer = json.at("answer").string(),
          .label = ""};
}

/// The first `limit` of the rows in random order, in that order; all of them, untouched, when limit is 0.
void keep(TaskRows& set, int64_t limit, std::string_view purpose, uint64_t seed) {
  const auto count = static_cast<int64_t>(set.rows.size());
  if (limit <= 0 || limit >= count) return;
  auto order = RandomStream(seed, purpose).permutation(count);
  order.resize(static_cast<size_t>(limit));
  std::vector<Row> chosen;
  for (const int64_t i : order) chosen.push_back(std::move(set.rows[static_cast<size_t>(i)]));
  set.rows = std::move(chosen);
}

/// Options named in the row's "Answer format: a/b/c"; 0 when it has none.
int64_t options_of(const Row& row) {
  constexpr std::string_view kFormat = "Answer format: ";
  const auto start = row.instruction.rfind(kFormat);
  if (start == std::string::npos) return 0;
  return 1 + std::count(row.instruction.begin() + static_cast<int64_t>(start), row.instruction.end(), '/');
}

TaskRows all_test_rows(const TaskInfo& task, const RowOptions& options) {
  if (task.family == "builtin") return {.rows = builtin_test_rows(task, options.seed)};
  return task.family == "telequad" ? telequad_test_rows(options) : commonsense_test_rows(task, options.path);
}

}  // namespace

std::span<const TaskInfo> tasks() {
  static const std::vector<TaskInfo> table = [] {
    std::vector<TaskInfo> all(commonsense_tasks().begin(), commonsense_tasks().end());
    all.insert(all.end(), telequad_tasks().begin(), telequad_tasks().end());
    all.insert(all.end(), builtin_tasks().begin(), builtin_tasks().end());
    return all;
  }();
  return table;
}

const TaskInfo& find_task(std::string_view name) {
  std::vector<std::string_view> known;
  for (const auto& task : tasks()) {
    if (task.name == name) return task;
    known.push_back(task.name);
  }
  fail(kConfig, "task \"", name, "\" is not known; known: ", join(known));
}

std::vector<std::string> expand_tasks(std::span<const std::string> names) {
  std::vector<std::string> result;
  const auto add = [&](std::string_view name) {
    if (std::find(result.begin(), result.end(), name) == result.end()) result.emplace_back(name);
  };
  for (const auto& name : names) {
    const size_t before = result.size();
    for (const auto& task : tasks())
      if (task.family == name) add(task.name);
    if (result.size() == before) add(find_task(name).name);
  }
  return result;
}

std::vector<std::string_view> families() {
  std::vector<std::string_view> names;
  for (const auto& task : tasks())
    if (std::find(names.begin(), names.end(), task.family) == names.end()) names.push_back(task.family);
  return names;
}

std::vector<std::string_view> label_keys(std::string_view family) {
  if (family != "telequad") return {"label"};
  return {telequad_label_keys().begin(), telequad_label_keys().end()};
}

std::vector<Row> load_rows(const std::filesystem::path& file) {
  const Json json = load_json(file);
  EK_CHECK(json.is_array(), kData, file.string(), " is not a JSON array of rows");
  std::vector<Row> rows;
  rows.reserve(json.size());
  for (const auto& row : json) rows.push_back(to_row(JsonView(row, concat(file.string(), ": row ", rows.size()))));
  EK_CHECK(!rows.empty(), kData, file.string(), " holds no rows");
  return rows;
}

TaskRows test_rows(const TaskInfo& task, const RowOptions& options) {
  auto set = all_test_rows(task, options);
  const auto count = static_cast<int64_t>(set.rows.size());
  if (options.limit > count)
    set.note = concat(task.name, " has ", count, " rows, ", options.limit, " were asked for: all are scored");
  if (task.family != "builtin")
    keep(set, options.limit, "test-rows", options.seed);
  else if (options.limit > 0 && options.limit < count)
    set.rows.erase(set.rows.begin() + options.limit, set.rows.end());
  return set;
}

TaskRows training_rows(std::string_view family, const RowOptions& options) {
  if (family == "builtin") return {.rows = builtin_training_rows(options.limit, options.seed)};
  const bool telequad = family == "telequad";
  EK_CHECK(telequad || family == "commonsense", kConfig, "data.task is \"", family, "\", allowed: ", join(families()));
  auto set = telequad ? telequad_training_rows(options) : commonsense_training_rows(options.path);
  keep(set, options.limit, "training-rows", options.seed);
  return set;
}

std::string extract_answer(const TaskInfo& task, std::string_view text, bool lowercase) {
  std::string lowered;
  if (lowercase) {
    for (const char c : text) lowered += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    text = lowered;
  }
  size_t first = std::string_view::npos;
  std::string_view found;
  for (const auto answer : task.answers) {
    const auto at = text.find(answer);
    if (at < first) first = at, found = answer;
  }
  return std::string(found);
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
    const int64_t options = options_of(row);
    sum += 1.0 / static_cast<double>(options > 0 ? options : static_cast<int64_t>(task.answers.size()));
  }
  return rows.empty() ? 0.0 : sum / static_cast<double>(rows.size());
}

}  // namespace evenkeel
