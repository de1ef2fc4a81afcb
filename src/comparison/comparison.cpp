#include "comparison/comparison.h"

#include <algorithm>
#include <set>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/text.h"
#include "comparison/conclusion.h"
#include "comparison/function_differences.h"
#include "records/run_costs.h"

namespace evenkeel::comparison {
namespace {

/// All inputs of the comparison of one way of serving.
struct Inputs {
  const StudyRuns& study;
  const ScoreLookup& scores;
  const scoring::Measure& endpoint;
  std::span<const scoring::Measure* const> beside;
  const CompareOptions& options;
};

/// Keeps the values that are named, if any are.
template <typename T>
std::vector<T> only(std::vector<T> all, const std::vector<T>& named) {
  if (!named.empty())
    std::erase_if(all, [&](const T& one) { return std::find(named.begin(), named.end(), one) == named.end(); });
  return all;
}

/// Returns the tasks that have a measure, unless the options name fewer.
std::vector<std::string> compared_tasks(const Inputs& in, const scoring::Measure& measure) {
  return only(tasks_with(in.scores.all(), measure), in.options.tasks);
}

std::vector<std::string> without(std::vector<std::string> all, const std::vector<std::string>& some) {
  std::erase_if(all, [&](const auto& one) { return std::find(some.begin(), some.end(), one) != some.end(); });
  return all;
}

std::vector<double> budgets_of(const std::vector<scoring::TaskScore>& scores) {
  auto budgets = scoring::distinct(scores, &scoring::TaskScore::budget);
  std::sort(budgets.begin(), budgets.end());
  return budgets;
}

/// Returns the rank evaluation modes of an arm. Adapters that are cut to a budget's rank (mode a) are not exported.
std::vector<std::string> modes_of(const Inputs& in, const std::string& arm, scoring::ServedBy served_by) {
  const auto scores = in.scores.of_arm(arm);
  auto modes = scoring::distinct(scores, &scoring::TaskScore::rank_eval_mode);
  if (modes.empty()) modes.emplace_back();
  if (served_by != scoring::ServedBy::kRun) std::erase(modes, "a");
  return modes;
}

std::vector<double> present(std::span<const std::optional<double>> values) {
  std::vector<double> found;
  for (const auto& value : values)
    if (value) found.push_back(*value);
  return found;
}

std::optional<double> mean_or_none(std::span<const double> values) {
  return values.empty() ? std::nullopt : std::optional(mean_of(values));
}

std::optional<double> deviation_or_none(std::span<const double> values) {
  return values.size() < 2 ? std::nullopt : std::optional(deviation_of(values));
}

/// Returns a measure's mean over tasks and over the seeds that are complete for the endpoint.
std::optional<double> beside_mean(const Inputs& in, const Aspect& aspect, const BudgetMean& budget,
                                  const scoring::Measure& measure) {
  const auto tasks = compared_tasks(in, measure);
  if (tasks.empty()) return std::nullopt;
  std::vector<double> values;
  for (size_t i = 0; i < in.study.seeds.size(); ++i) {
    if (!budget.by_seed[i]) continue;
    const auto value = in.scores.mean(aspect, in.study.seeds[i], budget.budget, tasks, measure);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return mean_or_none(values);
}

BudgetMean budget_mean(const Inputs& in, const Aspect& aspect, double budget, const std::vector<std::string>& tasks) {
  BudgetMean result{.budget = budget, .by_seed = {}, .mean = {}, .deviation = {}, .interval = {}, .beside = {}};
  for (const int64_t seed : in.study.seeds)
    result.by_seed.push_back(in.scores.mean(aspect, seed, budget, tasks, in.endpoint));
  const auto values = present(result.by_seed);
  result.complete = static_cast<int64_t>(values.size());
  result.mean = mean_or_none(values);
  result.deviation = deviation_or_none(values);
  result.interval = t_interval(values);
  for (const auto* measure : in.beside) result.beside.push_back(beside_mean(in, aspect, result, *measure));
  return result;
}

/// Returns the differences of single rows of each task; nothing if a task has no rows, or the arms have different
/// rows.
ItemsOfSeed item_differences(const Inputs& in, const Aspect& arm, const Aspect& reference, int64_t seed, double budget,
                             const std::vector<std::string>& tasks) {
  ItemsOfSeed all;
  if (in.scores.unlike_rows(arm.arm, reference.arm, seed)) return {};
  for (const auto& task : tasks) {
    auto mine = in.scores.items(arm, seed, budget, task, in.endpoint);
    const auto other = in.scores.items(reference, seed, budget, task, in.endpoint);
    if (mine.empty() || mine.size() != other.size()) return {};
    for (size_t i = 0; i < mine.size(); ++i) mine[i] -= other[i];
    all.push_back(std::move(mine));
  }
  return all;
}

/// Returns the items of all seeds; nothing if some seed has none.
std::vector<ItemsOfSeed> items_of_seeds(const Inputs& in, const Aspect& arm, const Aspect& reference,
                                        const PairedDifference& pairs, const std::vector<std::string>& tasks) {
  std::vector<ItemsOfSeed> all;
  for (const int64_t seed : pairs.seeds) {
    all.push_back(item_differences(in, arm, reference, seed, pairs.budget, tasks));
    if (all.back().empty()) return {};
  }
  return all;
}

/// Returns the key of a bootstrap: the study and what is compared.
BootstrapKey bootstrap_key(const Inputs& in, const Aspect& arm, double budget) {
  const auto digest = sha256(concat(in.study.name, '\n', in.endpoint.name));
  return {std::stoull(digest.substr(0, 16), nullptr, 16), concat("study bootstrap, ", arm.arm, ' ', arm.rank_eval_mode,
                                                                 ' ', config::name_of(arm.served_by), " at ", budget)};
}

void add_statistics(const Inputs& in, const Aspect& arm, std::span<const ItemsOfSeed> items,
                    PairedDifference& difference) {
  const auto& values = difference.by_seed;
  difference.mean = mean_or_none(values);
  difference.deviation = deviation_or_none(values);
  difference.t = paired_interval(values);
  difference.p = t_test(values);
  difference.detectable = detectable_difference(values);
  if (values.size() < 2 || !in.options.bootstrap) return;
  if (are_alike(values) && items.empty()) return;  // every resample has the same mean: no width, as for the t interval
  difference.items = !items.empty();
  difference.bca = bca_interval(values, bootstrap_means(values, items, bootstrap_key(in, arm, difference.budget)));
}

PairedDifference paired(const Inputs& in, const Aspect& arm, const Aspect& reference, const BudgetMean& mine,
                        const BudgetMean& others, const std::vector<std::string>& tasks) {
  PairedDifference result;
  result.budget = mine.budget;
  for (size_t i = 0; i < in.study.seeds.size(); ++i) {
    if (!mine.by_seed[i] || !others.by_seed[i]) continue;
    result.seeds.push_back(in.study.seeds[i]);
    result.by_seed.push_back(*mine.by_seed[i] - *others.by_seed[i]);
  }
  const auto items =
      in.options.bootstrap ? items_of_seeds(in, arm, reference, result, tasks) : std::vector<ItemsOfSeed>();
  add_statistics(in, arm, items, result);
  return result;
}

void count(double difference, bool higher_is_better, TaskRecord& record) {
  if (difference == 0)
    ++record.ties;
  else
    ++((difference > 0) == higher_is_better ? record.wins : record.losses);
}

TaskRecord task_record(const Inputs& in, const Aspect& arm, const Aspect& reference, const std::string& task,
                       std::span<const PairedDifference> differences) {
  TaskRecord record{.task = task};
  for (const auto& pairs : differences)
    for (const int64_t seed : pairs.seeds) {
      const auto mine = in.scores.value(arm, seed, pairs.budget, task, in.endpoint);
      const auto other = in.scores.value(reference, seed, pairs.budget, task, in.endpoint);
      count(mine.value() - other.value(), in.endpoint.higher_is_better, record);
    }
  return record;
}

Aspect aspect_of(const ArmResult& arm, scoring::ServedBy served_by) { return {arm.arm, arm.rank_eval_mode, served_by}; }

void compare_arm(const Inputs& in, const ServedResult& result, const ArmResult& reference, ArmResult& arm) {
  arm.reference = reference.label;
  const auto mine = aspect_of(arm, result.served_by), other = aspect_of(reference, result.served_by);
  for (size_t i = 0; i < result.budgets.size(); ++i)
    arm.differences.push_back(paired(in, mine, other, arm.budgets[i], reference.budgets[i], result.tasks));
  for (const auto& task : result.tasks) arm.tasks.push_back(task_record(in, mine, other, task, arm.differences));
}

/// Returns the reference in the same rank evaluation mode, else in its first one.
const ArmResult* reference_for(const ServedResult& result, const std::string& reference, const ArmResult& arm) {
  const ArmResult* first = nullptr;
  for (const auto& other : result.arms) {
    if (other.arm != reference) continue;
    if (other.rank_eval_mode == arm.rank_eval_mode) return &other;
    if (first == nullptr) first = &other;
  }
  return first;
}

/// Corrects the p-values of all arms and budgets together by Holm's method.
void correct(ServedResult& result) {
  std::vector<PairedDifference*> tested;
  std::vector<double> p_values;
  for (auto& arm : result.arms)
    for (auto& difference : arm.differences) {
      if (!difference.p) continue;
      tested.push_back(&difference);
      p_values.push_back(*difference.p);
    }
  const auto corrected = holm(p_values);
  for (size_t i = 0; i < tested.size(); ++i) tested[i]->p_holm = corrected[i];
  result.comparisons = static_cast<int64_t>(tested.size());
}

void add_arms(const Inputs& in, ServedResult& result) {
  for (const auto& arm : in.study.arms) {
    if (result.served_by != scoring::ServedBy::kRun && in.scores.has_no_exports(arm)) {
      result.not_exported.push_back(arm);
      continue;
    }
    for (const auto& mode : modes_of(in, arm, result.served_by)) {
      auto& added = result.arms.emplace_back();
      added.label = mode.empty() ? arm : concat(arm, " (", mode, ")");
      added.arm = arm;
      added.rank_eval_mode = mode;
      added.is_reference = arm == in.study.reference;
      if (in.scores.served_in({arm, mode, result.served_by}) != result.served_by)
        result.as_in_run.push_back(added.label);
      for (const double budget : result.budgets)
        added.budgets.push_back(budget_mean(in, {arm, mode, result.served_by}, budget, result.tasks));
    }
  }
}

ServedResult served_result(const Inputs& in, scoring::ServedBy served_by) {
  const auto& scores = in.scores.all();
  ServedResult result{.served_by = served_by,
                      .tasks = compared_tasks(in, in.endpoint),
                      .without = {},
                      .budgets = only(budgets_of(scores), in.options.budgets),
                      .arms = {}};
  if (in.options.tasks.empty())
    result.without = without(scoring::distinct(scores, &scoring::TaskScore::task), result.tasks);
  add_arms(in, result);
  for (auto& arm : result.arms) {
    const auto* reference = reference_for(result, in.study.reference, arm);
    if (!arm.is_reference && reference != nullptr) compare_arm(in, result, *reference, arm);
  }
  correct(result);
  add_function_differences(in.study, in.scores, result);
  for (const auto& arm : result.arms)
    if (!arm.differences.empty()) result.conclusions.push_back(conclusion(arm, in.endpoint));
  return result;
}

/// Returns which tasks are missing in a run, and at which budgets; empty if none are.
std::string gaps_of(const Inputs& in, const ServedResult& result, const ArmResult& arm, int64_t seed) {
  std::vector<std::string> gaps;
  for (const double budget : result.budgets)
    for (const auto& task : result.tasks)
      if (!in.scores.value(aspect_of(arm, result.served_by), seed, budget, task, in.endpoint))
        gaps.push_back(concat(task, " at budget ", budget));
  const size_t all = gaps.size();
  if (all > 4) gaps.resize(3);
  return join(gaps) + (all > 4 ? concat(" and ", all - 3, " more") : "");
}

std::vector<std::string> missing_lines(const Inputs& in, const ServedResult& result) {
  std::vector<std::string> lines;
  for (const auto& run : in.study.runs)
    if (!run.missing.empty()) lines.push_back(concat(run.arm, ", seed ", run.seed, ": ", run.missing));
  for (const auto& arm : result.arms)
    for (const int64_t seed : in.study.seeds) {
      const auto* run = in.study.find(arm.arm, seed);
      if (run == nullptr || !run->missing.empty()) continue;
      if (const auto gaps = gaps_of(in, result, arm, seed); !gaps.empty())
        lines.push_back(concat(arm.label, ", seed ", seed, ": no score of ", gaps));
    }
  return lines;
}

/// Returns the mean of a cost over runs; nothing if some run lacks it.
std::optional<double> mean_cost(std::span<const records::Cost> costs, const records::CostMeasure& measure) {
  std::vector<double> values;
  for (const auto& cost : costs)
    if (const auto value = measure.of(cost)) values.push_back(*value);
  return values.size() == costs.size() ? mean_or_none(values) : std::nullopt;
}

/// Returns the measures, other than the endpoint, that some task has.
std::vector<const scoring::Measure*> measures_beside(const ScoreLookup& scores, const scoring::Measure& endpoint) {
  std::vector<const scoring::Measure*> beside;
  for (const auto* measure : scoring::measures_of(scores.all()))
    if (measure != &endpoint) beside.push_back(measure);
  return beside;
}

void check_endpoint(const StudyRuns& study, const ScoreLookup& scores, const scoring::Measure& endpoint) {
  const auto& all = scores.all();
  EK_CHECK(!all.empty(), kData, study.name,
           ": no run is done and evaluated: ", study.runs.empty() ? "there is none" : study.runs.front().missing);
  EK_CHECK(!tasks_with(all, endpoint).empty(), kConfig, "endpoint \"", endpoint.name, "\": no task of the runs has it",
           ", there are: ", join(scoring::measures_in(all)));
}

/// Checks that what the options name is there.
void check_named(const ScoreLookup& scores, const scoring::Measure& endpoint, const CompareOptions& options) {
  const auto tasks = tasks_with(scores.all(), endpoint);
  for (const auto& task : options.tasks)
    EK_CHECK(std::find(tasks.begin(), tasks.end(), task) != tasks.end(), kConfig, "no run has ", endpoint.name,
             " of a task \"", shown(task), "\", there are: ", join(tasks));
  const auto budgets = budgets_of(scores.all());
  for (const double budget : options.budgets)
    EK_CHECK(std::find(budgets.begin(), budgets.end(), budget) != budgets.end(), kConfig,
             "no run has scores at budget ", budget, ", there are: ", join(budgets));
}

/// Returns after which rounds the runs of an arm were scored, such as "fedit 4 (stopped early), 6".
std::string rounds_of(const StudyRuns& study, const std::string& arm) {
  std::vector<std::string> rounds;
  for (const auto& run : study.runs) {
    if (run.arm != arm || !run.missing.empty() || !run.records) continue;
    const auto& records = *run.records;
    auto text = concat(records.last_evaluated(), records.stopped_early ? " (stopped early)" : "",
                       records.lacks_final_scores() ? concat(" of ", records.total_rounds) : "");
    if (std::find(rounds.begin(), rounds.end(), text) == rounds.end()) rounds.push_back(std::move(text));
  }
  return rounds.empty() ? "" : concat(arm, ' ', join(rounds));
}

/// Returns the rounds of each arm, unless all runs were scored after the same round and it is their last as planned.
std::string rounds_note(const StudyRuns& study) {
  std::set<int64_t> rounds;
  bool as_planned = true;
  for (const auto& run : study.records()) {
    if (run.last_evaluated() < 0) continue;
    rounds.insert(run.last_evaluated());
    as_planned = as_planned && !run.stopped_early && !run.lacks_final_scores();
  }
  if (rounds.size() < 2 && as_planned) return {};
  std::vector<std::string> arms;
  for (const auto& arm : study.arms)
    if (auto rounds = rounds_of(study, arm); !rounds.empty()) arms.push_back(std::move(rounds));
  return concat("scored after round: ", join(arms, "; "));
}

/// Returns why the bootstrap of an arm does not draw rows.
std::string why_seeds_only(const Inputs& in, const ServedResult& result, const ArmResult& arm) {
  if (in.endpoint.items == nullptr) return "single rows are not recorded for this measure";
  const auto& reference = reference_for(result, in.study.reference, arm)->arm;
  for (const int64_t seed : in.study.seeds)
    if (const auto key = in.scores.unlike_rows(arm.arm, reference, seed))
      return concat("the test rows of ", arm.arm, " and ", reference, " differ by ", *key);
  return "evaluate.items = true records single rows";
}

std::vector<std::string> notes_of(const Inputs& in, const ServedResult& result) {
  const auto& study = in.study;
  std::vector<std::string> notes;
  if (study.seeds.size() < 2) notes.emplace_back("one seed: there is no interval and no test");
  if (!in.options.tasks.empty()) notes.push_back(concat("only of tasks: ", join(result.tasks)));
  if (!in.options.budgets.empty()) notes.push_back(concat("only at budgets: ", join(result.budgets)));
  if (!result.without.empty()) notes.push_back(concat("tasks without this endpoint: ", join(result.without)));
  if (auto rounds = rounds_note(study); !rounds.empty()) notes.push_back(std::move(rounds));
  std::vector<std::string> reasons;
  for (const auto& arm : result.arms) {
    const auto& all = arm.differences;
    if (std::none_of(all.begin(), all.end(), [](const auto& one) { return one.bca && !one.items; })) continue;
    auto reason = why_seeds_only(in, result, arm);
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) reasons.push_back(std::move(reason));
  }
  for (const auto& reason : reasons) notes.push_back("the bootstrap draws seeds only: " + reason);
  return notes;
}

}  // namespace

Comparison compare(const StudyRuns& study, const CompareOptions& options) {
  return compare(study, ScoreLookup(study, options.bootstrap), options);
}

Comparison compare(const StudyRuns& study, const ScoreLookup& scores, const CompareOptions& options) {
  const auto& endpoint = scoring::find_measure(options.endpoint.empty() ? study.endpoint : options.endpoint);
  check_endpoint(study, scores, endpoint);
  check_named(scores, endpoint, options);
  Comparison result;
  result.endpoint = &endpoint;
  if (options.beside) result.beside = measures_beside(scores, endpoint);
  const Inputs in{study, scores, endpoint, result.beside, options};
  auto served = scoring::distinct(scores.all(), &scoring::TaskScore::served_by);
  std::sort(served.begin(), served.end());
  for (const auto by : served) result.served.push_back(served_result(in, by));
  result.missing = missing_lines(in, result.served.front());
  result.notes = notes_of(in, result.served.front());
  for (const auto& arm : study.arms) result.costs.push_back(cost_of_arm(study, arm));
  return result;
}

ArmCost cost_of_arm(const StudyRuns& study, const std::string& arm) {
  std::vector<records::Cost> costs;
  for (const auto& run : study.runs)
    if (run.arm == arm && run.records) costs.push_back(cost_of(*run.records));
  ArmCost result{.arm = arm, .runs = static_cast<int64_t>(costs.size()), .means = {}};
  for (const auto& measure : records::cost_measures()) result.means.push_back(mean_cost(costs, measure));
  return result;
}

}  // namespace evenkeel::comparison
