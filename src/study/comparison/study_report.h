/// \file  Writes the comparison of a study as text, Markdown, LaTeX, CSV or JSON.
#pragma once

#include <string>

#include "study/comparison/comparison.h"
#include "study/comparison/study_runs.h"

namespace evenkeel::study {

/// Text of at most 80 columns: what is missing, what was shown, then the tables.
std::string text_report(const StudyRuns& study, const Comparison& comparison);
/// Markdown with the same tables; means have their intervals beside them.
std::string markdown_report(const StudyRuns& study, const Comparison& comparison);
/// LaTeX tables for \input{}. They need the package booktabs.
std::string latex_report(const StudyRuns& study, const Comparison& comparison);
/// CSV (RFC 4180) with one line per arm, seed, budget, way of serving, task and measure, then one per arm, seed and
/// cost, whose other columns are empty. It has single values as recorded: shares are from 0 to 1. Missing runs have no
/// line.
std::string csv_report(const StudyRuns& study);
/// JSON with the statistics and all single values of csv_report().
std::string json_report(const StudyRuns& study, const Comparison& comparison);

}  // namespace evenkeel::study
