/// \file  Summarises the demo's two runs: one line of accuracies per run, and a sentence.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "records/run_records.h"

namespace evenkeel::report {

/// Accuracies of one run by budget, in percent, each the mean over tasks.
struct DemoLine {
  std::string title;
  std::vector<double> by_budget{};
  double mean = 0;  ///< over the budgets
};

/// Returns the accuracies of the run after `round` rounds; 0: before the first. No budgets if the round has no score.
DemoLine demo_line(const std::string& title, const records::RunRecords& run, int64_t round);
/// Returns the accuracies of always giving the most frequent answer.
DemoLine majority_line(const records::RunRecords& run);

/// Returns half of the width of a 95 % interval, in percentage points, for the difference of two accuracies that are
/// means over the tasks of `run`; 0 if the run has no scores. It assumes that questions are drawn independently, and
/// that all budgets ask the same questions, so that more budgets do not narrow the interval.
double half_interval(const records::RunRecords& run);

/// Formats a line of the demo's table; the first column has 26 characters.
std::string demo_row(const DemoLine& line);
/// Formats the titles of the columns: the experts per token of each budget.
std::string demo_titles(const records::RunRecords& run);

/// Returns one sentence: whether two methods differ by more than half_interval(), or that no answer can be read.
/// \param before  accuracies before the first round; left out if there are none
/// \param first, second  accuracies of the two methods \param run  a run with the same questions as both methods
std::string demo_sentence(const DemoLine& before, const DemoLine& first, const DemoLine& second,
                          const records::RunRecords& run);

}  // namespace evenkeel::report
