/// \file  Finds differences between compared runs other than their methods: what changes the function that is trained
/// or scored (gates, experts per token, prompts, arithmetic and so on), rows, clients, machine and files. Each can
/// change results, so a comparison names them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comparison/compared_runs.h"
#include "records/run_records.h"

namespace evenkeel::comparison {

/// One property that differs, with the runs that share each value, in the order of the report.
struct Difference {
  /// One value of the property and its runs.
  struct Side {
    std::string value;              ///< "not known" if the records lack it
    std::vector<std::string> runs;  ///< labels of runs, or names of arms
  };
  std::string what;  ///< name of the property: a key of the config, or what the run did, such as "gating"
  std::vector<Side> sides;
  bool changes_function = false;  ///< true: runs that differ in it train or score another function

  /// Returns the side of a run or an arm; null if it does not have the property.
  const Side* side_of(const std::string& label) const;
};

/// Compares the last evaluated round, every key of the config that compared_settings() (records/run_settings.h)
/// returns, arithmetic, storage of the base, threads, gating, experts per token and LoRA scale in training, processor,
/// torch, program, model files, data files, simulated client profiles and scored rows. Runs with configs that differ
/// only in the seed and in keys without effect form an arm; the arms' sets of seeds are compared too. Returns nothing
/// for one run.
/// \param free  keys and sections of the config in which the runs may differ. Keys that change the function are listed
///              all the same.
std::vector<Difference> differences(std::span<const records::RunRecords> runs, std::span<const std::string> free = {});

/// Compares the runs of a study in the same way, with the names of arms as labels.
std::vector<Difference> differences(const StudyRuns& study);
/// Returns the differences between the arms of a study that change the function, with the names of arms as labels.
std::vector<Difference> function_differences(const StudyRuns& study);

/// Formats experts per token by ascending budget: "1, 2, 8", or "8" if all are equal.
std::string top_ks_text(const std::map<double, int64_t>& by_budget);

/// Returns a text such as "renormalised (ub-smoe, a3smoe); not renormalised (fedit)".
std::string sides_text(const Difference& difference);

}  // namespace evenkeel::comparison
