#include "study/paper/paper_studies.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "base/format/config_table.h"
#include "base/plain/data_path.h"
#include "base/plain/files.h"
#include "fed/run/run_forecast.h"
#include "fed/store/changed_keys.h"
#include "models/causal_lm.h"
#include "records/run_settings.h"
#include "study/definition/study_plan.h"
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

/// Returns the base config with the settings of all arms.
config::Table config_of(const StudyFile& file) {
  auto config = config::Table::load(file.base);
  for (const auto& setting : file.study.set) config.set(setting);
  return config;
}

std::vector<std::string> missing_inputs(const StudyFile& file) {
  const auto config = config_of(file);
  const auto model = config.table("model").string("path").value_or("builtin:tiny-olmoe");
  const auto data = config.table("data").string("path").value_or("");
  std::vector<std::string> missing;
  if (!is_model_here(model)) missing.push_back(model);
  if (!is_data_here(data)) missing.push_back(data);
  return missing;
}

/// Returns the last name of a path: OLMoE-1B-7B-0924 of models/OLMoE-1B-7B-0924 and of allenai/OLMoE-1B-7B-0924.
std::string last_name(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

/// Returns true if a study of the paper may differ in this key: it changes neither the work of its runs nor what the
/// tables say of them. Table 15 is printed with other values of the last two.
bool may_differ(std::string_view key) {
  constexpr std::array<std::string_view, 22> kKeys = {"name",
                                                      "output",
                                                      "report",
                                                      "threads",
                                                      "model.path",
                                                      "model.device",
                                                      "model.engine",
                                                      "model.graphs",
                                                      "model.cuda_kernels",
                                                      "model.products",
                                                      "model.base_cache",
                                                      "model.compute_dtype",
                                                      "data.path",
                                                      "clients.parallel",
                                                      "train.merge_tokens",
                                                      "evaluate.items",
                                                      "evaluate.batch_size",
                                                      "evaluate.cache",
                                                      "evaluate.cache_gib",
                                                      "evaluate.bert_score",
                                                      "train.transport_dtype",
                                                      "lora.router_lora"};
  return std::any_of(kKeys.begin(), kKeys.end(),
                     [&](std::string_view section) { return records::is_in_section(key, section); });
}

/// Returns true if a config of a study, without arm and seed, is that of the paper's study.
bool is_config_of_paper(const fed::ExperimentConfig& config, const fed::ExperimentConfig& paper) {
  const auto changed = fed::changed_keys(config, paper);
  return last_name(config.model.path) == last_name(paper.model.path) &&
         std::all_of(changed.begin(), changed.end(), [](const auto& one) { return may_differ(one.key); });
}

/// Returns the config of a study's folder; nothing if this program cannot read it.
std::optional<fed::ExperimentConfig> config_in(const fs::path& folder, const std::vector<std::string>& settings) {
  try {
    return read_config(folder / kBaseFile, settings);
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool is_run_of_paper(const StudyRun& run, const StudyState& state, const StudyFile& file) {
  const auto has_name = [&](const Arm& arm) { return arm.name == run.arm; };
  const auto arms = file.arms();
  const auto paper = std::find_if(arms.begin(), arms.end(), has_name);
  const auto here = std::find_if(state.arms.begin(), state.arms.end(), has_name);
  const auto& seeds = file.study.seeds;
  return paper != arms.end() && here != state.arms.end() && *paper == *here &&
         std::find(seeds.begin(), seeds.end(), run.seed) != seeds.end();
}

/// Reads how far the runs of the paper's study are. Runs that the folder does not know yet are not done.
void add_state(PaperStudy& study, const StudyFile& file, StudyState state) {
  const auto config = config_in(study.folder, request_of(state, study.folder / kBaseFile).of_all_arms());
  std::erase_if(state.runs, [&](const StudyRun& run) { return !is_run_of_paper(run, state, file); });
  study.is_other =
      !config || state.runs.empty() || !is_config_of_paper(*config, read_config(file.base, file.study.set));
  if (study.is_other) return;
  study.done = state.count(RunState::kDone);
  study.failed = state.count(RunState::kFailed);
  for (const auto& run : state.runs)
    if (run.state == RunState::kDone) study.seconds_taken += run.seconds.value_or(0);
}

/// Returns the config by which the runs that are left compute.
fed::ExperimentConfig config_of_runs(const PaperStudy& study, const StudyFile& file) {
  if (!study.is_other && holds_study(study.folder)) {
    const auto state = read_state(study.folder);
    auto settings = request_of(state, study.folder / kBaseFile).of_all_arms();
    settings.insert(settings.end(), state.pinned.begin(), state.pinned.end());
    if (const auto config = config_in(study.folder, settings)) return *config;
  }
  auto settings = file.study.set;
  if (!config_of(file).table("model").contains("device")) settings.emplace_back("model.device=auto");
  return read_config(file.base, settings);
}

/// Foresees the time of the runs that are left: from those that are done, otherwise from FLOPs.
void add_time_left(PaperStudy& study, const StudyFile& file, std::optional<double> flops, const SpeedOfRun& speed) {
  const auto left = static_cast<double>(study.runs - study.done);
  if (study.done > 0) {
    study.seconds_left = left * study.seconds_taken / static_cast<double>(study.done);
  } else if (flops) {
    const fed::RunWork nothing{.tokens = {}, .scored_rows = 0};
    study.by_flops = true;
    if (const auto of_products = speed(config_of_runs(study, file)))
      study.seconds_left = *flops / *of_products + left * fed::foreseen_seconds(nothing, {});
  }
}

PaperStudy study_of_paper(const std::string& name, const fs::path& folder, std::optional<double> flops,
                          const SpeedOfRun& speed) {
  PaperStudy study{.name = name, .file = shipped_folder() / "configs/paper" / (name + ".toml"), .folder = folder};
  const auto file = StudyFile::load(study.file);
  study.runs = static_cast<int64_t>(file.study.arm.size() * file.study.seeds.size());
  study.missing = missing_inputs(file);
  if (holds_study(folder)) add_state(study, file, read_state(folder));
  add_time_left(study, file, flops, speed);
  return study;
}

}  // namespace

std::vector<PaperStudy> paper_studies(const SpeedOfRun& speed) {
  const auto names = study_names();
  const auto flops = flops_by_study();
  std::vector<PaperStudy> studies;
  const auto add = [&](const std::string& name, const fs::path& folder) {
    const auto found = flops.find(name);
    studies.push_back(
        study_of_paper(name, folder, found == flops.end() ? std::nullopt : std::optional(found->second), speed));
  };
  for (const auto& name : names) add(name, fs::path("runs") / name);
  for (const auto& name : names) add("small/" + name, fs::path("runs/paper-small") / name);
  return studies;
}

}  // namespace evenkeel::study
