/// \file  Makes the tables of the scores of an evaluation.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/table.h"
#include "scoring/measures.h"
#include "scoring/task_evaluation.h"

namespace evenkeel::report {

/// Returns the name of a ServedBy in tables: "in the run", "exported: transformers" or "exported: native gates".
std::string served_name(scoring::ServedBy by);

/// Makes the tables of an evaluation: one for each kind of tasks and rank evaluation mode, with one line per task and
/// one block of columns per budget. The columns are the measures (scoring/measures.h) that some score has; multiple
/// choice also has chance and majority. The last line holds means over tasks, for measures that all tasks have. The
/// note has means over budgets, the number of questions and the meaning of the columns. If exported adapters were
/// scored, a second table compares them with the run. Scores of single clients are left out (report/client_scores.h).
std::vector<Table> score_tables(std::span<const scoring::TaskScore> scores);
/// Formats the tables as text of at most 80 columns; "" if there are no scores.
std::string score_text(std::span<const scoring::TaskScore> scores);

}  // namespace evenkeel::report
