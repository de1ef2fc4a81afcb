/// \file  Summarises what the demo's two runs show: one line of accuracies per run, and a sentence.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/run_records.h"

namespace evenkeel::apps {

/// Accuracies of one run by budget, in percent, each the mean over tasks.
struct DemoLine {
  std::string title;
  std::vector<double> by_budget{};
  double mean = 0;  ///< over the budgets
};

/// Scores of a model that takes `round` rounds of training; 0: before the first.
DemoLine demo_line(const std::string& title, const report::RunRecords& run, int64_t round);
/// Scores of always giving the most frequent answer.
DemoLine majority_line(const report::RunRecords& run);

/// Returns half of the width of a 95 % interval, in percentage points, for the difference of two accuracies that are
/// means over the tasks of `run`. The questions are taken as independent draws, and the budgets as one.
double chance_difference(const report::RunRecords& run);

/// Formats a line of the demo's table; the first column has 26 characters.
std::string demo_row(const DemoLine& line);
/// Formats the titles of the columns: the experts per token of each budget.
std::string demo_titles(const report::RunRecords& run);

/// Says in one sentence whether two methods differ by more than chance over questions explains.
std::string demo_sentence(const DemoLine& before, const DemoLine& first, const DemoLine& second,
                          const report::RunRecords& run);

}  // namespace evenkeel::apps
