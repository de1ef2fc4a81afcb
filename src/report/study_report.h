/// \file  Writes the comparison of a study as text, Markdown, LaTeX, CSV or JSON.
#pragma once

#include <string>

#include "comparison/compared_runs.h"
#include "comparison/comparison.h"

namespace evenkeel::report {

/// Formats text of at most 80 columns: the missing runs, the conclusions, then the tables.
std::string text_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);
/// Formats the same tables as Markdown. The interval of a mean is in the same cell.
std::string markdown_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);
/// Formats LaTeX tables for \input{}. They need the package booktabs.
std::string latex_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);
/// Formats CSV (RFC 4180) with one line per arm, seed, budget, way of serving, task and measure, then one line per arm,
/// seed and cost with the other columns empty. Values are those of the records, so shares are from 0 to 1. Missing runs
/// have no line. The last column names what changes the function that is trained or scored, beside the method, between
/// the arm and its reference.
std::string csv_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);
/// Formats JSON with the statistics and all single values of csv_report().
std::string json_report(const comparison::StudyRuns& study, const comparison::Comparison& comparison);

}  // namespace evenkeel::report
