/// \file  Formats the scores of an evaluation as text tables.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "scoring/measures.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::report {

/// Returns the name of a ServedBy in tables: "in the run", "exported: transformers" or "exported: native gates".
std::string served_name(scoring::ServedBy by);

/// Formats a table with one line per task and one block of columns per budget. Multiple-choice tasks show accuracy,
/// invalid, valid and likelihood in percent, then chance and majority. Free-text tasks have a table of their own: exact
/// match, F1, BERTScore, empty; so do likelihood tasks: nll, perplexity. The last line holds means over tasks, the last
/// block means over budgets. Blocks beyond 80 columns go into a further table. Scores of exported adapters and the
/// number of questions follow. Scores of single clients are left out (report/client_scores.h).
std::string score_table(std::span<const scoring::TaskScore> scores);

}  // namespace evenkeel::report
