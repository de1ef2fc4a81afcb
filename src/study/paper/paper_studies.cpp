#include "study/paper/paper_studies.h"

#include <algorithm>
#include <map>

#include "base/format/config_table.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "fed/run/run_forecast.h"
#include "models/causal_lm.h"
#include "study/definition/study_file.h"
#include "study/paper/paper_tables.h"

namespace evenkeel::study {
namespace {

/// FLOPs of all runs of a study.
struct StudyWork {
  std::string name;
  double flops = 0;
  void visit(auto& field) {
    field("name", name, "file of configs/paper without .toml");
    field("flops", flops, "of training and scoring, all runs");
  }
};

struct WorkFile {
  std::vector<StudyWork> studies;
  void visit(auto& field) { field("work", studies, "of a study of configs/paper"); }
};

std::map<std::string, double> flops_by_study() {
  std::map<std::string, double> flops;
  for (const auto& work :
       config::read<WorkFile>(config::Table::load(shipped_folder() / "configs/paper/work.toml")).studies)
    flops[work.name] = work.flops;
  return flops;
}

/// Returns the studies that the tables name, each once.
std::vector<std::string> study_names() {
  std::vector<std::string> names;
  for (const auto& table : paper_tables())
    for (const auto& name : table.studies)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

bool is_model_here(const std::string& path) { return path_exists(models::resolve_model_path(path) / "config.json"); }

bool is_data_here(const std::string& path) {
  try {
    return path.empty() || path_exists(expand_data_path(path, "data.path"));
  } catch (const Error&) {  // EVENKEEL_DATA is not set
    return false;
  }
}

std::vector<std::string> missing_inputs(const fs::path& base) {
  const auto config = config::Table::load(base);
  const auto model = config.table("model").string("path").value_or("builtin:tiny-olmoe");
  const auto data = config.table("data").string("path").value_or("");
  std::vector<std::string> missing;
  if (!is_model_here(model)) missing.push_back(model);
  if (!is_data_here(data)) missing.push_back(data);
  return missing;
}

/// Reads how far the runs are. Runs of the study that the folder does not know yet are not done.
void add_state(PaperStudy& study) {
  if (!holds_study(study.folder)) return;
  const auto state = read_state(study.folder);
  study.done = state.count(RunState::kDone);
  study.failed = state.count(RunState::kFailed);
  for (const auto& run : state.runs)
    if (run.state == RunState::kDone) study.seconds_taken += run.seconds.value_or(0);
}

/// Foresees the time of the runs that are left: from those that are done, otherwise from FLOPs.
void add_time_left(PaperStudy& study, std::optional<double> flops, double product_speed) {
  const auto left = static_cast<double>(std::max<int64_t>(0, study.runs - study.done));
  if (study.done > 0) {
    study.seconds_left = left * study.seconds_taken / static_cast<double>(study.done);
  } else if (flops) {
    const fed::RunWork nothing{.tokens = {}, .scored_rows = 0};
    study.is_least = true;
    study.seconds_left = *flops / product_speed + left * fed::foreseen_seconds(nothing, {});
  }
}

PaperStudy study_of_paper(const std::string& name, const fs::path& folder) {
  PaperStudy study{.name = name, .file = shipped_folder() / "configs/paper" / (name + ".toml"), .folder = folder};
  const auto file = StudyFile::load(study.file);
  study.runs = static_cast<int64_t>(file.study.arm.size() * file.study.seeds.size());
  study.missing = missing_inputs(file.base);
  add_state(study);
  return study;
}

}  // namespace

std::vector<PaperStudy> paper_studies(double product_speed) {
  const auto names = study_names();
  std::vector<PaperStudy> studies;
  for (const auto& name : names) studies.push_back(study_of_paper(name, fs::path("runs") / name));
  for (const auto& name : names)
    studies.push_back(study_of_paper("small/" + name, fs::path("runs/paper-small") / name));
  const auto flops = flops_by_study();
  for (auto& study : studies) {
    const auto found = flops.find(study.name);
    add_time_left(study, found == flops.end() ? std::nullopt : std::optional(found->second), product_speed);
  }
  return studies;
}

}  // namespace evenkeel::study
