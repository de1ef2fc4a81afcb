// The commonsense sets in the LLM-Adapters format. Hu et al., "LLM-Adapters: An Adapter Family for Parameter-Efficient
// Fine-Tuning of Large Language Models", EMNLP 2023.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files.h"
#include "data/tasks/family.h"

namespace evenkeel {
namespace {

using Answers = std::vector<std::string_view>;

const Answers kTrueFalse = {"true", "false"};
const Answers kFiveAnswers = {"answer1", "answer2", "answer3", "answer4", "answer5"};
const Answers kEndings = {"ending1", "ending2", "ending3", "ending4"};
const Answers kSolutions = {"solution1", "solution2"};
const Answers kOptions = {"option1", "option2"};

struct KnownFile {
  std::string_view sha256;
  FileState state;
};

constexpr std::array kKnownFiles = {
    KnownFile{"86d00e372905193c968c5ebbc47024a0b166b7138b4c5c7571500157010b0eef", FileState::kExact},
    KnownFile{"4a89ce368ae01a71d268d9851686738b2a0a1d84271116bab49a1dd2b48ecad7", FileState::kExact},
    KnownFile{"3f32a84716ca6d57d38728bf80cc8117aecd17445c2cf29a68b571b810eb82dc", FileState::kExact},
    KnownFile{"89df2397cbca81dc31adcc6f7f5b635821aa0565aafde46725b2b4bd39b4dfa9", FileState::kExact},
    KnownFile{"3ea7e99795e63a01f2f5e9ddbc4dca964d9ebb22f04201e64d1ac043be51ab61", FileState::kExact},
    KnownFile{"8479930f7b8a26052c78250280b5465a4016ca7fc806af440d0f37e243f3099e", FileState::kExact},
    KnownFile{"3860d11b9b42e590b6b4bbc1643214d373ed0b0d4ac62fcc7bdceb8e044ad141", FileState::kExact},
    KnownFile{"71543f41127451945379d106ffedaef502f1c8770dff6d2f543aca85e3080b1d", FileState::kExact},
    KnownFile{"6946f5209e7114c65c6d04f8f644c5a061af20d730b1cfe158fff3dc44076fb9", FileState::kExact},
    KnownFile{"f50fa0f3b243f7f7d2e768e3fd4a96b16af3ea189a1a679d1222727c05a1976d", FileState::kRebuilt},
    KnownFile{"7fc976de02124dff443ba2c3b0de5e12f3c33d1e823e700ceb0a42bbdab197c3", FileState::kRebuilt},
};

constexpr std::string_view kTrainingFile = "commonsense_15k.json";
constexpr std::string_view kStandIn = "commonsense_11k_rebuilt.json";

/// The kind of a training row, from the words of its template: the file itself carries no label.
std::string task_kind(const Row& row) {
  const auto says = [&](std::string_view words) { return row.instruction.find(words) != std::string::npos; };
  if (row.answer == "true" || row.answer == "false") return "boolq";
  if (row.answer.starts_with("solution")) return "piqa";
  if (row.answer.starts_with("ending")) return "hellaswag";
  if (row.answer.starts_with("option")) return "winogrande";
  // Social IQa lists three answers on one line; ARC and OpenBookQA share a template and cannot be told apart.
  return says("Answer format: answer1/answer2/answer3") && !says("answer4") ? "siqa" : "arc_obqa";
}

}  // namespace

std::span<const TaskInfo> commonsense_tasks() {
  static const std::array table = {
      TaskInfo{"arc_c", "commonsense", "ARC-Challenge", kFiveAnswers, "ARC-Challenge test (Clark et al. 2018)"},
      TaskInfo{"arc_e", "commonsense", "ARC-Easy", kFiveAnswers, "ARC-Easy test (Clark et al. 2018)"},
      TaskInfo{"boolq", "commonsense", "boolq", kTrueFalse, "BoolQ validation, question only (Clark et al. 2019)"},
      TaskInfo{"hellaswag", "commonsense", "hellaswag", kEndings, "HellaSwag validation (Zellers et al. 2019)"},
      TaskInfo{"obqa", "commonsense", "openbookqa", kFiveAnswers, "OpenBookQA test (Mihaylov et al. 2018)"},
      TaskInfo{"piqa", "commonsense", "piqa", kSolutions, "PIQA validation (Bisk et al. 2020)"},
      TaskInfo{"siqa", "commonsense", "social_i_qa", kFiveAnswers, "Social IQa validation (Sap et al. 2019)"},
      TaskInfo{"winogrande", "commonsense", "winogrande", kOptions, "WinoGrande validation (Sakaguchi et al. 2020)"},
  };
  return table;
}

FileState file_state(const std::filesystem::path& file) {
  const auto digest = sha256_file(file);
  const auto known = std::find_if(kKnownFiles.begin(), kKnownFiles.end(),
                                  [&](const KnownFile& entry) { return entry.sha256 == digest; });
  return known == kKnownFiles.end() ? FileState::kUnknown : known->state;
}

std::vector<Row> commonsense_test_rows(const TaskInfo& task, const std::filesystem::path& data_path) {
  auto rows = load_rows(data_path / task.folder / "test.json");
  for (auto& row : rows) row.label = task.name;
  return rows;
}

TrainingSet commonsense_training_rows(const std::filesystem::path& data_path) {
  TrainingSet set;
  std::filesystem::path file = data_path / kTrainingFile;
  if (!std::filesystem::exists(file)) {
    file = data_path / kStandIn;
    EK_CHECK(std::filesystem::exists(file), kData, data_path.string(), " holds neither ", kTrainingFile, " nor ",
             kStandIn);
  }
  if (file.filename() == kStandIn)
    set.note = concat(kTrainingFile, " is not in ", data_path.string(), ": training on the stand-in ", kStandIn,
                      ", which lacks Social IQa and HellaSwag");
  else if (file_state(file) != FileState::kExact)
    set.note = concat(file.string(), " is not the published file (its sha256 differs)");
  set.rows = load_rows(file);
  for (auto& row : set.rows) row.label = task_kind(row);
  set.files.push_back(file.string());
  return set;
}

}  // namespace evenkeel
