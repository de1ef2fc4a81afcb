/// \file  Makes the tables of one measure (scoring/measures.h), with single runs side by side.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "records/run_records.h"
#include "report/table.h"
#include "scoring/measures.h"

namespace evenkeel::report {

/// A run's scores at its last evaluated round, of one kind of answers, one rank evaluation mode (empty except for rank
/// methods) and one way of serving.
struct Scored {
  const records::RunRecords* run;
  std::string label;
  std::vector<scoring::TaskScore> scores;
  std::vector<double> budgets;  ///< ascending
};

/// Returns the label of a run's scores, such as "demo (b, exported: native gates)".
std::string label_of(const records::RunRecords& run, const std::string& mode, scoring::ServedBy by);
/// Returns the scores of one kind of answers, run by run, without single clients. \param runs  borrowed
std::vector<Scored> scored(std::span<const records::RunRecords> runs, scoring::AnswerKind kind);

/// Makes the tables of a measure, one for each kind of tasks that has values of it; none if there are no values.
std::vector<Table> measure_tables(std::span<const records::RunRecords> runs, const scoring::Measure& measure);
/// Returns a text that says which kinds of tasks were evaluated, and their measures, or that there are no scores yet.
std::string what_there_is(std::span<const records::RunRecords> runs);

}  // namespace evenkeel::report
