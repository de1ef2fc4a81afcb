/// \file  Finds differences between compared runs other than their methods: arithmetic, threads, machine, files,
/// gating, rows, and other settings. Each difference can change results, so a comparison lists differences first.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "records/run_records.h"

namespace evenkeel::comparison {

/// One property that differs, with the runs that share each value, in the order of the report.
struct Difference {
  /// One value of the property and its runs.
  struct Side {
    std::string value;  ///< "not known" if the records lack it
    std::vector<std::string> runs;
  };
  std::string what;  ///< name of the property
  std::vector<Side> sides;
};

/// Compares the last evaluated round, every key of the config that settings_of() (report/run_settings.h) returns,
/// compute_dtype, storage of the base, threads, processor, torch, program, model files, data files, gating,
/// simulated client profiles and scored rows. Runs with configs that differ only in name, seed and folder form a group;
/// the groups' sets of seeds are compared too. Returns nothing for one run.
/// \param free  keys and sections of the config in which the runs may differ
std::vector<Difference> differences(std::span<const records::RunRecords> runs, std::span<const std::string> free = {});

}  // namespace evenkeel::comparison
