/// \file  Finds differences between compared runs other than their methods: properties that change model outputs
/// (gates, experts per token, prompts, compute dtype and so on), rows, clients, machine and files. Each can change
/// results, so a comparison names them.
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
  bool changes_function = false;  ///< true: the property changes model outputs for equal tokens and adapters

  /// Returns the side of a run or an arm; null if it does not have the property.
  const Side* side_of(const std::string& label) const;
};

/// Compares the last evaluated round, every key of the config that compared_settings() (records/run_settings.h)
/// returns, compute dtype and kernels, dtype of the base, threads, gating, experts per token and LoRA scale in
/// training, source of a method in Python, processor, torch, program, model files, data files, simulated client
/// profiles and scored rows. Runs with configs that differ only in the seed and in keys without effect form an arm; the
/// arms' sets of seeds are compared too. Returns nothing for one run.
/// \param free  keys and sections of the config in which the runs may differ. Keys of KeyEffect::kFunction are listed
///              all the same.
std::vector<Difference> differences(std::span<const records::RunRecords> runs, std::span<const std::string> free = {});

/// Compares the runs of a study in the same way, without missing runs and with the names of arms as labels.
std::vector<Difference> differences(const StudyRuns& study);
/// Returns the differences of a study with changes_function, with the names of arms as labels, each on one side. The
/// runs of the seeds that all arms have are compared. StudyRuns::free is ignored.
std::vector<Difference> function_differences(const StudyRuns& study);

/// Formats experts per token by ascending budget: "1, 2, 8", or "8" if all are equal.
std::string top_ks_text(const std::map<double, int64_t>& by_budget);

/// Returns a text such as "renormalised (ub-smoe, a3smoe); not renormalised (fedit)".
std::string sides_text(const Difference& difference);

}  // namespace evenkeel::comparison
