/// \file  The scores of an evaluation, for a terminal.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "scoring/task_evaluation.h"

namespace evenkeel {

/// The values that a member has among `scores`, each once, in order of appearance.
template <typename T>
std::vector<T> distinct(std::span<const TaskScore> scores, T TaskScore::*member) {
  std::vector<T> values;
  for (const auto& score : scores)
    if (std::find(values.begin(), values.end(), score.*member) == values.end()) values.push_back(score.*member);
  return values;
}

/// Who serves, as tables call it: "in the run", "exported: transformers", "exported: native gates".
std::string served_name(ServedBy by);

/// Tasks down, one block of columns per budget. Choices: accuracy, invalid, valid, likelihood, in percent; then chance
/// and majority. Free text, in a table of its own: exact match, F1, BERTScore, empty. Means over tasks last, and over
/// budgets when there are several. Blocks that do not fit into 120 columns go into a table below. Under each kind, its
/// first number as others serve the adapter, where that was scored, and how many questions its tasks have. Scores of
/// single clients are left to report/client_scores.h.
std::string score_table(std::span<const TaskScore> scores);

}  // namespace evenkeel
