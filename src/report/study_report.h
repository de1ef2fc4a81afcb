/// \file  Writes the comparison of a study as text, Markdown, LaTeX, CSV or JSON.
#pragma once

#include <string>

#include "comparison/compared_runs.h"
#include "comparison/comparison.h"

namespace evenkeel::report {

/// Formats text of at most 80 columns: the missing runs, the conclusions, then the tables.
std::string text_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);
/// Formats missing runs, conclusions and tables as Markdown. Tables have one column per budget. The interval of a mean
/// is in the same cell.
std::string markdown_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);
/// Formats conclusions and the tables of markdown_report() as LaTeX for \input{}. Needs the package booktabs.
std::string latex_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);
/// Formats CSV (RFC 4180) with one line per arm, seed, way of serving, budget, task and measure, then one line per arm,
/// seed and cost. Costs of 1,000 tokens have a budget and K; costs of a run have neither. Shares are from 0 to 1.
/// Missing runs and incomplete scores have no line. The last column lists the properties in FunctionDifference
/// (comparison/arm_result.h).
std::string csv_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);
/// Formats JSON with the statistics and all single values of csv_report().
std::string json_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);

}  // namespace evenkeel::report
