/// \file  Compares the arms of a study with its reference: means per budget, paired differences over seeds with
/// intervals, corrected p-values, wins and losses, costs. docs/study-statistics.md explains every figure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comparison/arm_result.h"
#include "comparison/compared_runs.h"
#include "comparison/score_lookup.h"
#include "scoring/measures.h"

namespace evenkeel::comparison {

/// Costs of an arm, as means over its runs.
struct ArmCost {
  std::string arm;
  int64_t runs = 0;
  std::vector<std::optional<double>> means;  ///< by cost_measures(); an entry is empty unless every run has the cost
};

/// The whole comparison.
struct Comparison {
  const scoring::Measure* endpoint = nullptr;   ///< the measure by which arms are compared
  std::vector<const scoring::Measure*> beside;  ///< measures that are shown next to the endpoint
  std::vector<ServedResult> served;             ///< by way of serving, kRun first
  std::vector<ArmCost> costs;
  std::vector<std::string> missing;  ///< one line per missing run, then one per run that lacks tasks at some budget
  std::vector<std::string> notes;    ///< other remarks for the reader, one sentence each
};

/// Limits a comparison to some measures, tasks and budgets.
struct CompareOptions {
  std::string endpoint{};            ///< measure by which arms are compared; empty: the endpoint of the study
  std::vector<std::string> tasks{};  ///< tasks that are compared; empty: all that have the measure
  std::vector<double> budgets{};     ///< budgets that are compared; empty: all
  bool bootstrap = true;             ///< false: without bootstrap intervals, which take most of the time
  bool beside = true;                ///< false: without the other measures
};

/// Compares the arms of a study.
/// \throws kConfig listing the available measures if no run has the endpoint, or if its name is unknown; kConfig
/// listing the tasks or budgets if no run has one that the options name; kData if no run is done and evaluated
Comparison compare(const StudyRuns& study, const CompareOptions& options = {});
/// Compares with scores that were read before. \param scores  of `study`, read with items if options.bootstrap is true
Comparison compare(const StudyRuns& study, const ScoreLookup& scores, const CompareOptions& options);

/// Returns the mean cost of an arm over its runs that have records.
ArmCost cost_of_arm(const StudyRuns& study, const std::string& arm);

}  // namespace evenkeel::comparison
