#include "study/paper/paper_comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "base/plain/number_text.h"
#include "comparison/score_lookup.h"
#include "report/score_table.h"
#include "report/table.h"
#include "scoring/measures.h"
#include "study/paper/paper_costs.h"
#include "study/paper/paper_experts.h"

namespace evenkeel::study {
namespace {

constexpr std::string_view kAverage = "average";

/// A study with its scores.
struct OpenStudy {
  explicit OpenStudy(const comparison::StudyRuns& study) : runs(study), scores(study) {}
  const comparison::StudyRuns& runs;
  comparison::ScoreLookup scores;

  bool has(const std::string& arm) const { return std::count(runs.arms.begin(), runs.arms.end(), arm) > 0; }
};
using Studies = std::vector<std::unique_ptr<OpenStudy>>;

/// Reads the values of one study that a table asks for.
class StudyValues {
 public:
  StudyValues(const PaperTable& table, const OpenStudy& study)
      : table_(table), study_(study.runs), scores_(study.scores) {
    const auto all = scores_.all();
    budgets_ = table.budget ? std::vector{*table.budget} : scoring::distinct(all, &scoring::TaskScore::budget);
    cost_ = budget_cost(table.measure);
    if (cost_) return;
    measure_ = &scoring::find_measure(table.measure);
    auto having = all;
    std::erase_if(having, [&](const scoring::TaskScore& score) { return !measure_->of(score); });
    tasks_ = scoring::distinct(having, &scoring::TaskScore::task);
  }

  const std::vector<std::string>& tasks() const { return tasks_; }

  /// Returns true if the study can fill a row.
  bool has_row(const std::string& row) const {
    switch (table_.rows) {
      case PaperRows::kTask:
        return row == kAverage || std::count(tasks_.begin(), tasks_.end(), row) > 0;
      case PaperRows::kBudget:
        return row == kAverage || budget_of(row).has_value();
      case PaperRows::kStudy:
        return row == study_.name;
      case PaperRows::kMean:
      case PaperRows::kMeasure:
        return true;
    }
    return false;
  }

  std::optional<double> value(const std::string& row, const std::string& arm, int64_t seed) const {
    if (table_.rows == PaperRows::kTask && row != kAverage) return mean_over_budgets(arm, seed, budgets_, {row});
    if (table_.rows == PaperRows::kBudget && row != kAverage)
      return mean_over_budgets(arm, seed, {budget_of(row).value()}, tasks_);
    return mean_over_budgets(arm, seed, budgets_, tasks_);
  }

 private:
  std::optional<double> budget_of(const std::string& row) const {
    for (const double budget : budgets_)
      if (std::abs(budget - std::strtod(row.c_str(), nullptr)) < 1e-9) return budget;
    return std::nullopt;
  }

  /// Returns the rank evaluation mode of an arm that has two.
  std::string mode_of(const std::string& arm) const {
    for (const auto& score : scores_.of_arm(arm))
      if (score.rank_eval_mode == table_.rank_mode) return table_.rank_mode;
    return {};
  }

  std::optional<double> at_budget(const std::string& arm, int64_t seed, double budget,
                                  const std::vector<std::string>& tasks) const {
    if (!cost_) return scores_.mean({arm, mode_of(arm)}, seed, budget, tasks, *measure_);
    const auto* run = study_.find(arm, seed);
    return run != nullptr && run->records ? cost_(*run->records, budget) : std::nullopt;
  }

  std::optional<double> mean_over_budgets(const std::string& arm, int64_t seed, const std::vector<double>& budgets,
                                          const std::vector<std::string>& tasks) const {
    double sum = 0;
    for (const double budget : budgets) {
      const auto value = at_budget(arm, seed, budget, tasks);
      if (!value) return std::nullopt;
      sum += *value;
    }
    return budgets.empty() ? std::nullopt : std::optional(sum / static_cast<double>(budgets.size()));
  }

  const PaperTable& table_;
  const comparison::StudyRuns& study_;
  const comparison::ScoreLookup& scores_;
  const scoring::Measure* measure_ = nullptr;
  BudgetCost cost_;
  std::vector<double> budgets_;
  std::vector<std::string> tasks_;
};

/// Returns the rank evaluation mode that is not the table's; empty if the table has none or shows no scores.
std::string other_mode_of(const PaperTable& table) {
  if (budget_cost(table.measure)) return {};
  return table.rank_mode == "a" ? "b" : table.rank_mode == "b" ? "a" : "";
}

/// Returns true if runs of an arm were scored in a rank evaluation mode.
bool has_mode(const Studies& studies, const std::string& arm, const std::string& mode) {
  return !mode.empty() && std::any_of(studies.begin(), studies.end(), [&](const auto& study) {
    const auto scores = study->scores.of_arm(arm);
    return std::any_of(scores.begin(), scores.end(), [&](const auto& score) { return score.rank_eval_mode == mode; });
  });
}

double unit_factor(const PaperTable& table) { return table.unit == "percent" ? 100 : 1; }

using BySeed = std::map<int64_t, double>;

/// Returns the values of an arm by seed, from the first study that has both arm and row.
BySeed by_seed(const PaperTable& table, const Studies& studies, const std::string& row, const std::string& arm) {
  for (const auto& study : studies) {
    if (!study->has(arm)) continue;
    const StudyValues of_study(table, *study);
    if (!of_study.has_row(row)) continue;
    BySeed values;
    for (const int64_t seed : study->runs.seeds)
      if (const auto value = of_study.value(row, arm, seed)) values.emplace(seed, *value * unit_factor(table));
    return values;
  }
  return {};
}

/// Returns the mean over all rows' studies of the seeds that all have, for tables whose rows come from several studies.
BySeed average_of_rows(std::span<const PaperResult> rows, const std::function<BySeed(const PaperResult&)>& values_of) {
  BySeed sums;
  for (const auto& row : rows) {
    const auto values = values_of(row);
    if (&row == &rows.front())
      for (const auto& [seed, value] : values) sums.emplace(seed, 0.0);
    std::erase_if(sums, [&](const auto& sum) { return !values.contains(sum.first); });
    for (auto& [seed, sum] : sums) sum += values.at(seed);
  }
  for (auto& [seed, sum] : sums) sum /= static_cast<double>(rows.size());
  return sums;
}

std::vector<double> values_of(const BySeed& by_seed) {
  std::vector<double> values;
  for (const auto& [seed, value] : by_seed) values.push_back(value);
  return values;
}

bool is_marked(const PaperTable& table, const std::string& row, const std::string& arm) {
  return std::any_of(table.notes.begin(), table.notes.end(),
                     [&](const PaperNote& note) { return note.marks(row, arm); });
}

/// Returns the table with the measure and the budget of a row, if the row has its own.
PaperTable table_of_row(const PaperTable& table, const PaperRow& entry) {
  auto own = table;
  if (!entry.measure.empty()) own.measure = entry.measure;
  if (entry.budget) own.budget = entry.budget;
  return own;
}

/// Returns a cell in the table's rank evaluation mode.
PaperCell cell_of(const PaperTable& table, const Studies& studies, const PaperRow& entry, const std::string& arm) {
  const bool in_mode = !budget_cost(table.measure) && has_mode(studies, arm, table.rank_mode);
  return {.paper = table.printed(entry, arm),
          .by_seed = by_seed(table, studies, entry.row, arm),
          .marked = is_marked(table, entry.row, arm),
          .mode = in_mode ? table.rank_mode : ""};
}

PaperResult result_of(const PaperTable& table, const Studies& studies, const PaperRow& entry) {
  const auto own = table_of_row(table, entry);
  PaperResult result{.row = entry.row, .cells = {}, .counted = is_counted(own.measure)};
  for (const auto& arm : table.arms) {
    result.cells.push_back(cell_of(own, studies, entry, arm));
    auto& other = result.other_mode.emplace_back();
    auto in_other = own;
    in_other.rank_mode = other_mode_of(own);
    if (has_mode(studies, arm, in_other.rank_mode)) other = cell_of(in_other, studies, entry, arm);
  }
  return result;
}

/// Returns the tasks of the studies that the paper does not have.
std::vector<PaperRow> other_tasks(const PaperTable& table, const Studies& studies) {
  std::vector<PaperRow> rows;
  for (const auto& study : studies) {
    const StudyValues of_study(table, *study);
    for (const auto& task : of_study.tasks()) {
      const auto is_it = [&](const PaperRow& row) { return row.row == task; };
      if (std::none_of(table.values.begin(), table.values.end(), is_it) &&
          std::none_of(rows.begin(), rows.end(), is_it))
        rows.push_back({.row = task, .paper = {}});
    }
  }
  return rows;
}

/// Returns the layers or rounds of the first run of the table's arms that has any.
std::vector<PaperRow> series_of(const PaperTable& table, const Studies& studies) {
  std::vector<PaperRow> rows;
  for (const auto& study : studies)
    for (const auto& run : study->runs.runs) {
      if (!rows.empty() || !run.records || std::count(table.arms.begin(), table.arms.end(), run.arm) == 0) continue;
      const auto names = table.series == PaperSeries::kLayer ? expert_layers(*run.records) : rounds_of(*run.records);
      for (const auto& name : names)
        rows.push_back({.row = name, .paper = {}, .measure = concat(table.measure, ' ', name)});
    }
  return rows;
}

/// Returns the rows of the studies that follow the paper's.
std::vector<PaperRow> other_rows(const PaperTable& table, const Studies& studies) {
  if (table.rows == PaperRows::kTask) return other_tasks(table, studies);
  if (table.series == PaperSeries::kNone) return {};
  auto rows = series_of(table, studies);
  const auto is_printed = [&](const PaperRow& row) {
    return std::any_of(table.values.begin(), table.values.end(),
                       [&](const PaperRow& entry) { return entry.row == row.row; });
  };
  std::erase_if(rows, is_printed);
  return rows;
}

/// Returns true if the row is the mean of the rows above it, because several studies have one budget each.
bool averages_rows(const PaperTable& table, const std::string& row) {
  return row == kAverage && table.rows == PaperRows::kBudget && table.studies.size() > 1;
}

/// Sets the values of a row to the means of the rows above it.
void average(std::span<const PaperResult> rows, PaperResult& result) {
  for (size_t i = 0; i < result.cells.size(); ++i) {
    result.cells[i].by_seed = average_of_rows(rows, [&](const PaperResult& row) { return row.cells[i].by_seed; });
    if (result.other_mode[i])
      result.other_mode[i]->by_seed = average_of_rows(
          rows, [&](const PaperResult& row) { return row.other_mode[i] ? row.other_mode[i]->by_seed : BySeed(); });
  }
}

Studies open(const PaperTable& table, std::span<const comparison::StudyRuns> runs) {
  Studies studies;
  for (const auto& study : runs) studies.push_back(std::make_unique<OpenStudy>(study));
  const auto has_one = [&](const std::string& arm) {
    return std::any_of(studies.begin(), studies.end(), [&](const auto& study) { return study->has(arm); });
  };
  EK_CHECK(std::any_of(table.arms.begin(), table.arms.end(), has_one), kConfig, "table paper:", table.id,
           " has the arms ", join(table.arms), "; none of the studies has one of them. It is filled by ",
           join(table.studies), " of configs/paper");
  return studies;
}

std::vector<double> paired(const PaperCell& one, const PaperCell& other) {
  std::vector<double> differences;
  for (const auto& [seed, value] : one.by_seed)
    if (const auto found = other.by_seed.find(seed); found != other.by_seed.end())
      differences.push_back(value - found->second);
  return differences;
}

size_t arm_index(const PaperTable& table, const std::string& arm) {
  return static_cast<size_t>(std::find(table.arms.begin(), table.arms.end(), arm) - table.arms.begin());
}

/// Returns the 95 % interval of values or differences by seed. Equal ones have an interval without width if they are
/// counted, else none.
std::optional<comparison::Interval> interval_of(std::span<const double> values, bool counted) {
  return counted ? comparison::t_interval(values) : comparison::paired_interval(values);
}

/// Counts one pair of arms. `upper` has the larger printed value.
void count(const PaperCell& upper, const PaperCell& lower, bool counted, OrderAgreement& agreement) {
  const auto differences = paired(upper, lower);
  if (differences.empty()) return;
  ++agreement.pairs;
  const auto interval = interval_of(differences, counted);
  const bool agrees = comparison::mean_of(differences) > 0;
  if (agrees) ++agreement.agree;
  if (!interval) return;
  if (agrees && interval->low > 0) ++agreement.shown;
  if (interval->high < 0) ++agreement.contradicted;
}

std::string number(const PaperTable& table, double value) {
  if (table.unit == "number") return std::abs(value) < 1000 ? fixed(value, 4) : compact(value);
  if (table.unit == "fraction") return fixed(value, 4);
  return table.unit == "count" ? compact(value) : fixed(value, 2);
}

report::Cell our_cell(const PaperTable& table, const PaperCell& cell, std::optional<double> best) {
  const auto mean = cell.mean();
  if (!mean) return {.text = "-", .is_number = false};
  const auto interval = cell.interval();
  return {.text = number(table, *mean),
          .interval = interval ? concat("+-", number(table, (interval->high - interval->low) / 2)) : "",
          .best = mean == best};
}

/// Returns "Table 4", or "Figure 2" of the id "figure-2".
std::string name_of_table(const std::string& id) {
  constexpr std::string_view kFigure = "figure-";
  return id.starts_with(kFigure) ? concat("Figure ", id.substr(kFigure.size())) : "Table " + id;
}

int64_t printed_values(const PaperResult& result) {
  return std::count_if(result.cells.begin(), result.cells.end(),
                       [](const auto& cell) { return cell.paper.has_value(); });
}

/// Returns the largest value of a row, where a measure of a score is compared and higher is better.
std::optional<double> best_of(const PaperTable& table, const PaperResult& result,
                              const std::function<std::optional<double>(const PaperCell&)>& value) {
  if (table.rows == PaperRows::kMeasure || budget_cost(table.measure) || table.arms.size() < 2) return std::nullopt;
  std::optional<double> best;
  const auto consider = [&](const PaperCell& cell) {
    if (const auto one = value(cell); one && (!best || *one > *best)) best = one;
  };
  for (const auto& cell : result.cells) consider(cell);
  for (const auto& cell : result.other_mode)
    if (cell) consider(*cell);
  return best;
}

/// Returns true if all arms of a row have values of the same seeds.
bool cells_share_seeds(const PaperResult& result) {
  const auto is_unlike = [](const PaperCell& one, const PaperCell& other) {
    return !std::equal(one.by_seed.begin(), one.by_seed.end(), other.by_seed.begin(), other.by_seed.end(),
                       [](const auto& a, const auto& b) { return a.first == b.first; });
  };
  return std::adjacent_find(result.cells.begin(), result.cells.end(), is_unlike) == result.cells.end();
}

/// Returns the arms from best to worst.
std::string order_of(const PaperTable& table, const PaperResult& result,
                     const std::function<std::optional<double>(const PaperCell&)>& value) {
  std::vector<size_t> order;
  for (size_t i = 0; i < table.arms.size(); ++i)
    if (value(result.cells[i])) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return *value(result.cells[a]) > *value(result.cells[b]); });
  std::vector<std::string> names;
  for (const size_t i : order) names.push_back(table.arms[i]);
  return join(names, " > ");
}

/// Returns the row with the values of rank methods in the other rank evaluation mode; nothing if there are none.
std::optional<PaperResult> in_other_mode(const PaperResult& result) {
  std::optional<PaperResult> other;
  for (size_t i = 0; i < result.other_mode.size(); ++i) {
    if (!result.other_mode[i]) continue;
    if (!other) other = result;
    other->cells[i] = *result.other_mode[i];
  }
  return other;
}

/// Returns "Row average (rank methods in mode b)".
std::string row_text(const PaperResult& result) {
  for (const auto& cell : result.cells)
    if (!cell.mode.empty()) return concat("Row ", result.row, " (rank methods in mode ", cell.mode, ')');
  return concat("Row ", result.row);
}

std::string order_sentence(const PaperTable& table, const PaperResult& result) {
  const auto found = order_agreement(result);
  if (found.pairs == 0) return concat("Row ", result.row, ": nothing to compare with the paper.");
  return concat(row_text(result), ": the paper's order was ", found.confirmed() ? "" : "not ",
                "confirmed. Paper: ", order_of(table, result, [](const PaperCell& cell) { return cell.paper; }),
                ". Ours: ", order_of(table, result, [](const PaperCell& cell) { return cell.mean(); }), ". ",
                "In the paper's order: ", found.agree, " of ", found.pairs, " pairs, ", found.shown,
                " of them with a 95 % interval that excludes 0. In the other order with such an interval: ",
                found.contradicted, '.');
}

std::string_view words_of(PaperDirection is) {
  switch (is) {
    case PaperDirection::kHighest:
      return "the highest";
    case PaperDirection::kLowest:
      return "the lowest";
    case PaperDirection::kPositive:
      return "above 0";
    case PaperDirection::kNegative:
      return "below 0";
  }
  return "";
}

bool is_upward(PaperDirection is) { return is == PaperDirection::kHighest || is == PaperDirection::kPositive; }
bool is_of_all_arms(PaperDirection is) { return is == PaperDirection::kHighest || is == PaperDirection::kLowest; }

/// Returns the values by seed, or the differences to each other arm, whose intervals must lie above 0 for a claim to
/// hold.
std::vector<std::vector<double>> claimed_values(const PaperTable& table, const PaperResult& result,
                                                const PaperClaim& claim) {
  const double sign = is_upward(claim.is) ? 1 : -1;
  const auto& own = result.cells[arm_index(table, claim.arm)];
  std::vector<std::vector<double>> claimed;
  if (is_of_all_arms(claim.is)) {
    for (const auto& other : result.cells)
      if (&other != &own) claimed.push_back(paired(own, other));
  } else {
    claimed.push_back(values_of(own.by_seed));
  }
  for (auto& values : claimed)
    for (auto& value : values) value *= sign;
  return claimed;
}

std::string_view finding(std::span<const std::vector<double>> claimed, bool counted) {
  const auto is_short = [](const std::vector<double>& values) { return values.size() < 2; };
  if (claimed.empty() || std::any_of(claimed.begin(), claimed.end(), is_short))
    return "not compared (values of two seeds are needed)";
  std::vector<comparison::Interval> intervals;
  for (const auto& values : claimed)
    if (const auto interval = interval_of(values, counted)) intervals.push_back(*interval);
  if (intervals.size() < claimed.size()) return "not compared (what is equal in all seeds has no interval)";
  if (std::all_of(intervals.begin(), intervals.end(), [](const comparison::Interval& one) { return one.low > 0; }))
    return "confirmed (95 % intervals over seeds)";
  const bool contradicted =
      std::any_of(intervals.begin(), intervals.end(), [](const comparison::Interval& one) { return one.high < 0; });
  return contradicted ? "contradicted (95 % intervals over seeds)"
                      : "not shown (a 95 % interval over seeds includes 0)";
}

/// Returns in how many layers or rounds the mean of an arm is the highest or lowest; empty for other tables.
std::string series_text(const PaperTable& table, std::span<const PaperResult> results, const PaperClaim& claim) {
  if (table.series == PaperSeries::kNone || !is_of_all_arms(claim.is)) return {};
  int64_t all = 0, as_claimed = 0;
  for (const auto& result : results.subspan(table.values.size())) {
    const auto own = result.cells[arm_index(table, claim.arm)].mean();
    if (!own) continue;
    ++all;
    as_claimed += std::all_of(result.cells.begin(), result.cells.end(), [&](const PaperCell& other) {
      const auto mean = other.mean();
      return !mean || (is_upward(claim.is) ? *own >= *mean : *own <= *mean);
    });
  }
  return concat(" Its mean is so in ", as_claimed, " of ", all, ' ', config::name_of(table.series), "s.");
}

std::string claim_sentence(const PaperTable& table, std::span<const PaperResult> results, const PaperClaim& claim) {
  const auto result =
      std::find_if(results.begin(), results.end(), [&](const PaperResult& one) { return one.row == claim.row; });
  const bool of_series = !result->cells.empty() && &claim == &table.claims.front();
  return concat("Row ", claim.row, ": that ", claim.arm, " is ", words_of(claim.is), ", as in the paper, was ",
                finding(claimed_values(table, *result, claim), result->counted), '.',
                of_series ? series_text(table, results, claim) : "");
}

/// Returns what the rank evaluation modes of a table are; "" if it has none.
std::string mode_note(const PaperTable& table, std::span<const PaperResult> results) {
  const auto in_words = [](const std::string& mode) {
    return mode == "a" ? "a: the adapter cut to the budget's rank, all experts"
                       : "b: the whole adapter, as many experts as the budget allows";
  };
  const bool has_scores = std::any_of(results.begin(), results.end(), [](const PaperResult& result) {
    return std::any_of(result.cells.begin(), result.cells.end(), [](const auto& cell) { return !cell.mode.empty(); });
  });
  if (!has_scores) return "";
  const bool both = std::any_of(results.begin(), results.end(),
                                [](const PaperResult& result) { return in_other_mode(result).has_value(); });
  return concat(
      ". Rank evaluation mode of rank methods: ", in_words(table.rank_mode),
      both ? concat("; and ", in_words(other_mode_of(table)), ". The paper does not name its mode") : std::string());
}

/// Adds the line of an arm in one rank evaluation mode.
void add_line(const PaperTable& table, const std::string& row, const std::string& arm, const PaperCell& cell,
              std::optional<double> best_paper, std::optional<double> best_ours, report::Table& report) {
  const std::string paper = cell.paper ? concat(number(table, *cell.paper), cell.marked ? " !" : "") : "-";
  report.rows.push_back(
      {{.text = row, .is_number = false},
       {.text = cell.mode.empty() ? arm : concat(arm, " (", cell.mode, ')'), .is_number = false},
       {.text = paper, .best = cell.paper && cell.paper == best_paper, .is_number = cell.paper && !cell.marked},
       our_cell(table, cell, best_ours),
       {.text = std::to_string(cell.seeds())}});
}

}  // namespace

std::optional<double> PaperCell::mean() const {
  return by_seed.empty() ? std::nullopt : std::optional(comparison::mean_of(values_of(by_seed)));
}

std::optional<comparison::Interval> PaperCell::interval() const { return comparison::t_interval(values_of(by_seed)); }

int64_t PaperCell::seeds() const { return static_cast<int64_t>(by_seed.size()); }

std::vector<PaperResult> paper_results(const PaperTable& table, std::span<const comparison::StudyRuns> runs) {
  const auto studies = open(table, runs);
  std::vector<PaperResult> results;
  for (const auto& entry : table.values) {
    auto result = result_of(table, studies, entry);
    if (averages_rows(table, entry.row)) average(results, result);
    results.push_back(std::move(result));
  }
  for (const auto& row : other_rows(table, studies)) results.push_back(result_of(table, studies, row));
  return results;
}

OrderAgreement order_agreement(const PaperResult& result) {
  OrderAgreement agreement;
  for (const auto& one : result.cells)
    for (const auto& other : result.cells)
      if (one.paper && other.paper && *one.paper > *other.paper) count(one, other, result.counted, agreement);
  return agreement;
}

report::Table paper_report(const PaperTable& table, std::span<const PaperResult> results) {
  report::Table report{
      .title = concat(name_of_table(table.id), " of the paper: ", table.title),
      .head = {std::string(config::name_of(table.rows)), "arm", "paper", "ours", "seeds"},
      .rows = {},
      .note = concat("ours: mean over seeds, +- half of its 95 % interval (t)", mode_note(table, results)),
      .keys = 2};
  for (const auto& result : results) {
    const auto best_paper = best_of(table, result, [](const PaperCell& cell) { return cell.paper; });
    const auto best_ours = cells_share_seeds(result)
                               ? best_of(table, result, [](const PaperCell& cell) { return cell.mean(); })
                               : std::nullopt;
    for (size_t i = 0; i < table.arms.size(); ++i) {
      add_line(table, i == 0 ? result.row : "", table.arms[i], result.cells[i], best_paper, best_ours, report);
      if (result.other_mode[i])
        add_line(table, "", table.arms[i], *result.other_mode[i], best_paper, best_ours, report);
    }
  }
  return report;
}

std::vector<std::string> paper_sentences(const PaperTable& table, std::span<const PaperResult> results) {
  std::vector<std::string> sentences;
  const auto is_average = [](const PaperResult& result) { return result.row == kAverage; };
  const bool has_average = std::any_of(results.begin(), results.end(), is_average);
  for (const auto& result : results)
    if (has_average ? is_average(result) : printed_values(result) > 1) {
      sentences.push_back(order_sentence(table, result));
      if (const auto other = in_other_mode(result)) sentences.push_back(order_sentence(table, *other));
    }
  for (const auto& claim : table.claims) sentences.push_back(claim_sentence(table, results, claim));
  for (const auto& note : table.notes) {
    std::vector<std::string> where;
    if (!note.row.empty()) where.push_back(concat("row ", note.row));
    if (!note.arm.empty()) where.push_back(note.arm);
    sentences.push_back(concat(where.empty() ? "" : concat("! ", join(where, ", "), ": "), note.text));
  }
  return sentences;
}

}  // namespace evenkeel::study
