#include "report/study_tables.h"

#include <algorithm>
#include <cmath>

#include "base/plain/error.h"
#include "base/plain/number_text.h"
#include "comparison/conclusion.h"
#include "records/run_costs.h"
#include "report/score_cells.h"
#include "report/score_table.h"

namespace evenkeel::report {
namespace {

constexpr auto kNoValue = "-";

/// Returns the number of decimals with which the largest value has about five digits; shares have two.
int decimals_for(double largest, const scoring::Measure& measure) {
  if (measure.is_share) return 2;
  if (largest < 10) return 4;
  return largest < 100 ? 3 : largest < 1000 ? 2 : 1;
}

double largest_mean(const comparison::Comparison& comparison) {
  double largest = 0;
  for (const auto& result : comparison.served)
    for (const auto& arm : result.arms)
      for (const auto& budget : arm.budgets) largest = std::max(largest, std::abs(budget.mean.value_or(0)));
  return largest;
}

/// Returns the largest end of an interval of differences, or the largest mean if there are no intervals.
double largest_difference(const comparison::Comparison& comparison) {
  double largest = 0;
  for (const auto& result : comparison.served)
    for (const auto& arm : result.arms)
      for (const auto& difference : arm.differences) {
        const double mean = difference.mean.value_or(0);
        const auto interval = difference.t.value_or(comparison::Interval{mean, mean});
        largest = std::max({largest, std::abs(interval.low), std::abs(interval.high)});
      }
  return largest;
}

/// Formats values of a measure.
struct Form {
  const scoring::Measure& measure;
  int decimals;
  std::string operator()(std::optional<double> value) const {
    return value ? comparison::value_text(*value, measure, decimals) : kNoValue;
  }
  std::string operator()(const std::optional<comparison::Interval>& interval) const {
    if (!interval) return kNoValue;
    return concat('[', comparison::value_text(interval->low, measure, decimals), ", ",
                  comparison::value_text(interval->high, measure, decimals), ']');
  }
};

Form form_of_means(const comparison::Comparison& comparison) {
  return {*comparison.endpoint, decimals_for(largest_mean(comparison), *comparison.endpoint)};
}

Form form_of_differences(const comparison::Comparison& comparison) {
  return {*comparison.endpoint, decimals_for(largest_difference(comparison), *comparison.endpoint)};
}

Cell name(std::string text) { return {.text = std::move(text), .is_number = false}; }

Cell beside_cell(const std::optional<double>& value, const scoring::Measure& measure) {
  return {Form{measure, measure.is_share ? 1 : 4}(value)};
}

/// Returns true if the same seeds are complete in all arms at a budget.
bool has_equal_seeds(const comparison::ServedResult& result, size_t budget) {
  const auto has = [](const std::optional<double>& value) { return value.has_value(); };
  const auto& first = result.arms.front().budgets[budget].by_seed;
  return std::all_of(result.arms.begin(), result.arms.end(), [&](const comparison::ArmResult& arm) {
    const auto& other = arm.budgets[budget].by_seed;
    return std::equal(first.begin(), first.end(), other.begin(), other.end(),
                      [&](const auto& one, const auto& two) { return has(one) == has(two); });
  });
}

bool has_equal_seeds(const comparison::ServedResult& result) {
  for (size_t i = 0; i < result.budgets.size(); ++i)
    if (!has_equal_seeds(result, i)) return false;
  return true;
}

/// Returns the best mean of a budget; nothing if fewer than two arms have one, or if the arms have different seeds.
std::optional<double> best_mean(const comparison::ServedResult& result, size_t budget,
                                const scoring::Measure& measure) {
  std::optional<double> best;
  int64_t count = 0;
  if (!has_equal_seeds(result, budget)) return best;
  for (const auto& arm : result.arms) {
    const auto mean = arm.budgets[budget].mean;
    count += mean.has_value();
    if (mean && (!best || measure.is_better(*mean, *best))) best = mean;
  }
  return count > 1 ? best : std::nullopt;
}

std::string title_of(const comparison::Comparison& comparison, const comparison::ServedResult& result) {
  const size_t tasks = result.tasks.size();
  return concat(comparison.endpoint->title, "; mean over ", tasks, tasks == 1 ? " task" : " tasks", ", then over seeds",
                result.served_by == scoring::ServedBy::kRun ? "" : concat("; ", served_title(result.served_by)));
}

Cell p_cell(const std::optional<double>& p) {
  if (!p) return {kNoValue};
  return {*p < 0.001 ? "<0.001" : fixed(*p, 3)};
}

Cell size_cell(const std::optional<double>& size, const Form& form) { return {form(size)}; }

std::vector<Cell> difference_cells(const comparison::PairedDifference& difference, const Form& form) {
  return {{concat(difference.budget)},
          {concat(difference.by_seed.size())},
          {form(difference.mean)},
          {form(difference.t)},
          {form(difference.bca)},
          p_cell(difference.p_holm),
          size_cell(difference.detectable, form)};
}

std::vector<std::string> difference_head() {
  return {"budget", "n", "diff.", "95 % t", "95 % BCa", "p Holm", "detect."};
}

/// Returns the labels of the references that arms are compared with: one per rank evaluation mode of the reference.
std::vector<std::string> references_of(const comparison::ServedResult& result) {
  std::vector<std::string> labels;
  for (const auto& arm : result.arms)
    if (!arm.reference.empty() && std::find(labels.begin(), labels.end(), arm.reference) == labels.end())
      labels.push_back(arm.reference);
  return labels;
}

/// Returns the name of the references for a title.
std::string reference_title(const comparison::ServedResult& result, const std::string& reference) {
  const auto labels = references_of(result);
  return labels.size() == 1 ? labels[0] : reference;
}

/// Returns an arm's label, with that of its reference if the arms have several: "hetlora (b) less flora (b)".
std::string pair_label(const comparison::ServedResult& result, const comparison::ArmResult& arm) {
  return references_of(result).size() > 1 ? concat(arm.label, " less ", arm.reference) : arm.label;
}

void add_note(Table& table, const std::string& note) {
  if (!note.empty()) table.note += concat(table.note.empty() ? "" : " ", note);
}

/// Returns in what an arm and its reference differ beside the method: "Beside the method: gating: ..., in fedit ...".
std::string pair_note(const comparison::ArmResult& arm) {
  std::vector<std::string> all;
  for (const auto& [what, own, others] : arm.unlike)
    all.push_back(concat(what, ": ", own, ", in ", arm.reference, ' ', others));
  return all.empty() ? "" : concat("The two also differ in ", join(all, "; in "), '.');
}

/// Returns the interval of a mean, with the number of seeds if the arms have different ones: "[0.1, 0.3], n=4".
std::string interval_with_n(const comparison::BudgetMean& budget, const Form& form, bool equal_seeds) {
  const auto interval = budget.interval ? form(budget.interval) : "";
  if (equal_seeds) return interval;
  return concat(interval, interval.empty() ? "" : ", ", "n=", budget.complete);
}

}  // namespace

std::string served_title(scoring::ServedBy served_by) { return served_name(served_by); }

std::string function_note(const comparison::ServedResult& result) {
  std::vector<std::string> sentences, differences;
  const auto add = [&](std::string_view before, const std::vector<std::string>& list, std::string_view between) {
    if (!list.empty()) sentences.push_back(concat(before, join(list, between), '.'));
  };
  for (const auto& difference : result.unlike)
    differences.push_back(concat(difference.what, ": ", comparison::sides_text(difference)));
  add("Other programs compute the same as the run: ", result.as_in_run, ", ");
  add("Not scored as exported (evaluate.as_exported = false): ", result.not_exported, ", ");
  add("Arms differ in ", differences, "; in ");
  return join(sentences, " ");
}

Table means_by_line(const comparison::Comparison& comparison, const comparison::ServedResult& result) {
  const auto form = form_of_means(comparison);
  Table table{title_of(comparison, result),
              {"arm", "budget", "n", "mean", "95 % t"},
              {},
              has_equal_seeds(result) ? "*: best mean." : "*: best mean, if all arms have the same seeds."};
  table.keys = 2;
  add_note(table, function_note(result));
  for (const auto* measure : comparison.beside) table.head.push_back(head_of(*measure));
  for (size_t i = 0; i < result.budgets.size(); ++i) {
    const auto best = best_mean(result, i, *comparison.endpoint);
    for (const auto& arm : result.arms) {
      const auto& budget = arm.budgets[i];
      auto& row = table.rows.emplace_back();
      row = {name(arm.label),
             {concat(budget.budget)},
             {concat(budget.complete)},
             {.text = form(budget.mean), .best = best && budget.mean == best},
             {form(budget.interval)}};
      for (size_t m = 0; m < budget.beside.size(); ++m)
        row.push_back(beside_cell(budget.beside[m], *comparison.beside[m]));
    }
  }
  return table;
}

Table means_by_budget(const comparison::Comparison& comparison, const comparison::ServedResult& result) {
  const auto form = form_of_means(comparison);
  Table table{title_of(comparison, result), {"arm"}, {}, "Brackets: 95 % interval by t over seeds."};
  if (!has_equal_seeds(result)) table.note += " n: complete seeds; no best mean is marked where arms differ in them.";
  add_note(table, function_note(result));
  for (const double budget : result.budgets) table.head.push_back(concat("budget ", budget));
  for (const auto& arm : result.arms) {
    auto& row = table.rows.emplace_back();
    row.push_back(name(arm.label));
    for (size_t i = 0; i < arm.budgets.size(); ++i) {
      const auto& budget = arm.budgets[i];
      const auto best = best_mean(result, i, *comparison.endpoint);
      row.push_back({.text = form(budget.mean),
                     .interval = interval_with_n(budget, form, has_equal_seeds(result, i)),
                     .best = best && budget.mean == best});
    }
  }
  return table;
}

Table measures_beside_endpoint(const comparison::Comparison& comparison, const comparison::ServedResult& result) {
  Table table{"Other measures, means over tasks and seeds", {"arm", "budget", "n"}, {}, function_note(result), 2};
  for (const auto* measure : comparison.beside) table.head.push_back(head_of(*measure));
  for (const auto& arm : result.arms)
    for (const auto& budget : arm.budgets) {
      if (comparison.beside.empty()) continue;
      auto& row = table.rows.emplace_back();
      row = {name(arm.label), {concat(budget.budget)}, {concat(budget.complete)}};
      for (size_t m = 0; m < budget.beside.size(); ++m)
        row.push_back(beside_cell(budget.beside[m], *comparison.beside[m]));
    }
  return table;
}

Table differences_of(const comparison::Comparison& comparison, const comparison::ArmResult& arm) {
  Table table{concat(arm.label, " less ", arm.reference, ", paired by seed"), difference_head(), {}};
  for (const auto& difference : arm.differences)
    table.rows.push_back(difference_cells(difference, form_of_differences(comparison)));
  table.note = pair_note(arm);
  return table;
}

std::string differences_note(const comparison::ServedResult& result) {
  return concat("n: seeds complete in both arms. BCa: bootstrap. p Holm: paired t-test, corrected over ",
                result.comparisons, " comparisons. detect.: smallest difference found with 80 % power at 5 %.");
}

Table all_differences(const comparison::Comparison& comparison, const comparison::ServedResult& result,
                      const std::string& reference) {
  Table table{concat("Differences to ", reference_title(result, reference), ", paired by seed"),
              {"arm"},
              {},
              differences_note(result),
              2};
  add_note(table, function_note(result));
  const auto head = difference_head();
  table.head.insert(table.head.end(), head.begin(), head.end());
  for (const auto& arm : result.arms)
    for (const auto& difference : arm.differences) {
      auto row = difference_cells(difference, form_of_differences(comparison));
      row.insert(row.begin(), name(pair_label(result, arm)));
      table.rows.push_back(std::move(row));
    }
  return table;
}

Table wins_and_losses(const comparison::ServedResult& result, const std::string& reference) {
  Table table{concat("wins-losses-ties against ", reference_title(result, reference), ", over seeds and budgets"),
              {"task"},
              {}};
  add_note(table, function_note(result));
  for (const auto& task : result.tasks) table.rows.push_back({name(task)});
  for (const auto& arm : result.arms) {
    if (arm.tasks.empty()) continue;
    table.head.push_back(pair_label(result, arm));
    for (size_t i = 0; i < arm.tasks.size(); ++i) {
      const auto& record = arm.tasks[i];
      table.rows[i].push_back({.text = concat(record.wins, '-', record.losses, '-', record.ties), .is_number = false});
    }
  }
  return table;
}

Table costs(const comparison::Comparison& comparison) {
  Table table{"cost of a run, mean over runs",
              {"arm", "runs"},
              {},
              "Bytes of all clients and rounds; FLOPs and tokens of training; seconds of all rounds as measured, "
              "without evaluations."};
  for (const auto& measure : records::cost_measures()) table.head.emplace_back(measure.title);
  for (const auto& arm : comparison.costs) {
    auto& row = table.rows.emplace_back();
    row = {name(arm.arm), {concat(arm.runs)}};
    for (const auto& mean : arm.means) row.push_back({.text = mean ? compact(*mean) : kNoValue, .is_number = false});
  }
  return table;
}

}  // namespace evenkeel::report
