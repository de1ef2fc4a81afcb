#include "comparison/compared_runs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/plain/error.h"
#include "records/run_settings.h"
#include "scoring/measures.h"

namespace evenkeel::comparison {
namespace {

/// Returns the index of each run's arm, in order of appearance.
std::vector<size_t> arm_indices(std::span<const records::RunRecords> runs) {
  using Arm = std::pair<config::Values, std::set<int64_t>>;  // settings and seeds
  std::vector<Arm> arms;
  std::vector<size_t> indices;
  for (const auto& run : runs) {
    auto settings = records::settings_of_arm(run);
    const auto known =
        std::find_if(arms.begin(), arms.end(),
                     [&](const Arm& arm) { return arm.first == settings && !arm.second.contains(run.seed); }) -
        arms.begin();
    if (static_cast<size_t>(known) == arms.size()) arms.push_back({std::move(settings), {}});
    arms[static_cast<size_t>(known)].second.insert(run.seed);
    indices.push_back(static_cast<size_t>(known));
  }
  return indices;
}

/// Returns a name that is not among `taken`: "fedit", "fedit (2)", ...
std::string distinct_name(const std::string& name, const std::vector<std::string>& taken) {
  auto distinct = name;
  for (int64_t i = 2; std::find(taken.begin(), taken.end(), distinct) != taken.end(); ++i)
    distinct = concat(name, " (", i, ")");
  return distinct;
}

/// Returns the names of arms: the method, or the label of the first run if the method has several arms or is unknown.
std::vector<std::string> arm_names(std::span<const records::RunRecords> runs, std::span<const size_t> arm_of_run) {
  std::vector<const records::RunRecords*> firsts;
  for (size_t i = 0; i < runs.size(); ++i)
    if (arm_of_run[i] == firsts.size()) firsts.push_back(&runs[i]);
  std::map<std::string, int64_t> arms_of_method;
  for (const auto* first : firsts) ++arms_of_method[first->method];
  std::vector<std::string> names;
  for (const auto* first : firsts) {
    const bool by_label = arms_of_method[first->method] > 1 || first->method.empty();
    names.push_back(distinct_name(by_label ? first->label : first->method, names));
  }
  return names;
}

bool has(const records::RunRecords& run, const scoring::Measure& measure) {
  const auto scores = run.scores(run.last_evaluated());
  return scores.empty() ||
         std::any_of(scores.begin(), scores.end(), [&](const auto& score) { return measure.of(score); });
}

void add_missing_runs(StudyRuns& study) {
  std::vector<ArmRun> all;
  for (const auto& arm : study.arms)
    for (const int64_t seed : study.seeds) {
      const auto* run = study.find(arm, seed);
      all.push_back(run ? *run : ArmRun{.arm = arm, .seed = seed, .missing = "no run of that arm and seed is given"});
    }
  study.runs = std::move(all);
}

}  // namespace

std::vector<scoring::TaskScore> ArmRun::scores() const {
  return records ? records->scores(records->last_evaluated()) : std::vector<scoring::TaskScore>();
}

const ArmRun* StudyRuns::find(const std::string& arm, int64_t seed) const {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const ArmRun& run) { return run.arm == arm && run.seed == seed; });
  return found == runs.end() ? nullptr : &*found;
}

std::vector<records::RunRecords> StudyRuns::records() const {
  std::vector<records::RunRecords> all;
  for (const auto& run : runs)
    if (run.records) all.push_back(*run.records);
  return all;
}

StudyRuns arms_of(std::span<const records::RunRecords> runs) {
  const auto indices = arm_indices(runs);
  StudyRuns study{
      .name = "runs", .reference = {}, .endpoint = {}, .arms = arm_names(runs, indices), .seeds = {}, .runs = {}};
  if (!study.arms.empty()) study.reference = study.arms.front();
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& arm = study.arms[indices[i]];
    study.runs.push_back({.arm = arm, .seed = runs[i].seed, .records = runs[i]});
    if (runs[i].last_evaluated() < 0) study.runs.back().missing = "nothing is evaluated yet";
    if (std::find(study.seeds.begin(), study.seeds.end(), runs[i].seed) == study.seeds.end())
      study.seeds.push_back(runs[i].seed);
  }
  std::sort(study.seeds.begin(), study.seeds.end());
  add_missing_runs(study);
  return study;
}

std::string default_endpoint(std::span<const records::RunRecords> runs) {
  const auto all = scoring::measures();
  const auto found = std::find_if(all.begin(), all.end(), [&](const scoring::Measure& measure) {
    return std::all_of(runs.begin(), runs.end(), [&](const records::RunRecords& run) { return has(run, measure); });
  });
  return std::string((found == all.end() ? all.front() : *found).name);
}

}  // namespace evenkeel::comparison
