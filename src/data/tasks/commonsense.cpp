// The commonsense sets in the LLM-Adapters format. Hu et al., "LLM-Adapters: An Adapter Family for Parameter-Efficient
// Fine-Tuning of Large Language Models", EMNLP 2023.
#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "data/tasks.h"
#include "data/tasks/family.h"

namespace evenkeel::data {
namespace {

using Answers = std::vector<std::string>;

const Answers kTrueFalse = {"true", "false"};
const Answers kFiveAnswers = {"answer1", "answer2", "answer3", "answer4", "answer5"};
const Answers kEndings = {"ending1", "ending2", "ending3", "ending4"};
const Answers kSolutions = {"solution1", "solution2"};
const Answers kOptions = {"option1", "option2"};

constexpr std::string_view kTrainingFile = "commonsense_15k.json";
constexpr std::string_view kStandIn = "commonsense_11k_rebuilt.json";

/// Returns the kind of a training row, from the words of its template, because the file has no labels.
std::string task_kind(const Row& row) {
  const auto says = [&](std::string_view words) { return row.instruction.find(words) != std::string::npos; };
  if (row.answer == "true" || row.answer == "false") return "boolq";
  if (row.answer.starts_with("solution")) return "piqa";
  if (row.answer.starts_with("ending")) return "hellaswag";
  if (row.answer.starts_with("option")) return "winogrande";
  // Social IQa has three answers on one line. ARC and OpenBookQA have the same template and cannot be distinguished.
  return says("Answer format: answer1/answer2/answer3") && !says("answer4") ? "siqa" : "arc_obqa";
}

std::vector<TaskInfo> commonsense_tasks(const RowOptions&) {
  return {
      TaskInfo{"arc_c", "ARC-Challenge/test.json", kFiveAnswers, "ARC-Challenge test (Clark et al. 2018)"},
      TaskInfo{"arc_e", "ARC-Easy/test.json", kFiveAnswers, "ARC-Easy test (Clark et al. 2018)"},
      TaskInfo{"boolq", "boolq/test.json", kTrueFalse, "BoolQ validation, question only (Clark et al. 2019)"},
      TaskInfo{"hellaswag", "hellaswag/test.json", kEndings, "HellaSwag validation (Zellers et al. 2019)"},
      TaskInfo{"obqa", "openbookqa/test.json", kFiveAnswers, "OpenBookQA test (Mihaylov et al. 2018)"},
      TaskInfo{"piqa", "piqa/test.json", kSolutions, "PIQA validation (Bisk et al. 2020)"},
      TaskInfo{"siqa", "social_i_qa/test.json", kFiveAnswers, "Social IQa validation (Sap et al. 2019)"},
      TaskInfo{"winogrande", "winogrande/test.json", kOptions, "WinoGrande validation (Sakaguchi et al. 2020)"},
  };
}

TaskRows commonsense_test_rows(const TaskInfo& task, const RowOptions& from) {
  const auto file = from.path / task.file;
  TaskRows set{.rows = load_rows(file)};
  for (size_t i = 0; i < set.rows.size(); ++i) {
    auto& row = set.rows[i];
    row.label = task.name;
    const bool allowed = std::find(task.answers.begin(), task.answers.end(), row.answer) != task.answers.end();
    EK_CHECK(allowed, kData, file.string(), ": row ", i, ": answer is \"", shown(row.answer),
             "\", which can never be right, allowed: ", join(task.answers));
  }
  return set;
}

TaskRows commonsense_training_rows(const RowOptions& from) {
  TaskRows set;
  std::filesystem::path file = from.path / kTrainingFile;
  if (!std::filesystem::exists(file)) {
    file = from.path / kStandIn;
    EK_CHECK(std::filesystem::exists(file), kData, from.path.string(), " holds neither ", kTrainingFile, " nor ",
             kStandIn);
  }
  if (file.filename() == kStandIn)
    set.note = concat(kTrainingFile, " is not in ", from.path.string(), ": training on the stand-in ", kStandIn,
                      ", which lacks Social IQa and HellaSwag");
  else if (file_state(file) != FileState::kExact)
    set.note = concat(file.string(), " is not the published file (its sha256 differs)");
  set.rows = load_rows(file);
  for (auto& row : set.rows) row.label = task_kind(row);
  set.files.push_back(file.string());
  return set;
}

}  // namespace

TaskFamily commonsense() {
  return {.name = "commonsense",
          .tasks = commonsense_tasks,
          .training_rows = commonsense_training_rows,
          .test_rows = commonsense_test_rows,
          .in_folder = true};
}

}  // namespace evenkeel::data
