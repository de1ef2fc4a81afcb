#include "report/study_report.h"

#include <algorithm>

#include "base/plain/error.h"
#include "comparison/cost_by_k.h"
#include "comparison/differences.h"
#include "report/cost_by_k_table.h"
#include "report/differences_text.h"
#include "report/study_tables.h"

namespace evenkeel::report {
namespace {

/// Returns a text such as "3 arms x 5 seeds, reference fedit".
std::string design(const comparison::StudyRuns& study) {
  return concat(study.name, ": ", study.arms.size(), study.arms.size() == 1 ? " arm, " : " arms, ", study.seeds.size(),
                study.seeds.size() == 1 ? " seed (" : " seeds (", join(study.seeds), "), reference ", study.reference);
}

/// Returns the differences between arms. Missing runs, whose seeds are not equal then, are named apart.
std::vector<comparison::Difference> unlike_runs(const comparison::StudyRuns& study) {
  auto all = comparison::differences(study);
  const bool unfinished = std::any_of(study.runs.begin(), study.runs.end(), [](const comparison::ArmRun& run) {
    return run.records && run.records->lacks_final_scores();
  });
  std::erase_if(all, [&](const comparison::Difference& one) {
    return one.what == "seeds" || (one.what == "scored after" && !unfinished);
  });
  return all;
}

/// Returns the missing runs and notes.
std::vector<std::string> remarks(const comparison::Comparison& comparison) {
  std::vector<std::string> lines;
  for (const auto& missing : comparison.missing) lines.push_back("missing: " + missing);
  for (const auto& note : comparison.notes) lines.push_back("note: " + note);
  return lines;
}

/// Returns what precedes the tables: missing runs, notes, differences.
std::vector<std::string> preface(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  auto lines = remarks(comparison);
  const auto unlike = unlike_runs(study);
  if (!unlike.empty()) lines.emplace_back(kNotAlike);
  for (auto& line : difference_lines(unlike)) lines.push_back(std::move(line));
  return lines;
}

std::string served_prefix(const comparison::ServedResult& result) {
  return result.served_by == scoring::ServedBy::kRun ? "" : concat('(', served_title(result.served_by), ") ");
}

std::string text_of_served(const comparison::StudyRuns& study, const comparison::Comparison& comparison,
                           const comparison::ServedResult& result) {
  std::string text;
  for (const auto& sentence : result.conclusions) text += wrapped(served_prefix(result) + sentence);
  text += '\n' + text_of(means_by_line(comparison, result));
  for (const auto& arm : result.arms)
    if (!arm.differences.empty()) text += '\n' + text_of(differences_of(comparison, arm));
  if (result.comparisons > 0) text += wrapped(differences_note(result));
  const auto wins = wins_and_losses(result, study.reference);
  return text + (wins.head.size() > 1 ? '\n' + text_of(wins) : "") + '\n';
}

/// Returns the tables of a way of serving, for formats without a width limit.
std::vector<Table> wide_tables(const comparison::StudyRuns& study, const comparison::Comparison& comparison,
                               const comparison::ServedResult& result) {
  std::vector<Table> tables{means_by_budget(comparison, result), measures_beside_endpoint(comparison, result),
                            all_differences(comparison, result, study.reference),
                            wins_and_losses(result, study.reference)};
  std::erase_if(tables, [](const Table& table) { return table.rows.empty() || table.head.size() < 2; });
  return tables;
}

/// Returns what the runs cost: in all, and per token by K.
std::vector<Table> cost_tables(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  auto by_k = comparison::costs_by_k(study, study.arms, comparison::client_top_ks(study));
  std::erase_if(by_k, [](const comparison::CostOfK& cost) { return cost.runs == 0; });
  std::vector<Table> tables{costs(comparison)};
  if (!by_k.empty()) tables.push_back(cost_by_k_table(by_k));
  return tables;
}

std::vector<Table> wide_tables(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  std::vector<Table> tables;
  for (const auto& result : comparison.served)
    for (auto& table : wide_tables(study, comparison, result)) tables.push_back(std::move(table));
  for (auto& table : cost_tables(study, comparison)) tables.push_back(std::move(table));
  return tables;
}

std::vector<std::string> conclusions(const comparison::Comparison& comparison) {
  std::vector<std::string> all;
  for (const auto& result : comparison.served)
    for (const auto& sentence : result.conclusions) all.push_back(served_prefix(result) + sentence);
  return all;
}

}  // namespace

std::string text_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  std::string text = wrapped(design(study));
  for (const auto& line : remarks(comparison)) text += wrapped(line);
  text += '\n' + differences_text(unlike_runs(study));
  for (const auto& result : comparison.served) text += text_of_served(study, comparison, result);
  const auto tables = cost_tables(study, comparison);
  for (const auto& table : tables) text += concat(&table == &tables.front() ? "" : "\n", text_of(table));
  return text;
}

std::string markdown_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  std::string text = concat("# ", design(study), "\n\n");
  for (const auto& line : preface(study, comparison)) text += concat("- ", line, '\n');
  for (const auto& sentence : conclusions(comparison)) text += concat("- ", sentence, '\n');
  for (const auto& table : wide_tables(study, comparison)) text += '\n' + markdown_of(table);
  return text;
}

std::string latex_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison) {
  std::string text = "% \\usepackage{booktabs}\n";
  for (const auto& line : preface(study, comparison)) text += concat("% ", line, '\n');
  text += "{\\sloppy\n";
  for (const auto& sentence : conclusions(comparison)) text += latex_prose(sentence) + "\n\n";
  text += "}\n";
  for (const auto& table : wide_tables(study, comparison)) text += latex_of(table) + '\n';
  return text;
}

}  // namespace evenkeel::report
