/// \file  What runs put side by side do not share beside their methods: arithmetic, threads, machine, files, gating,
/// rows. Each can move a figure by itself, so a comparison says so before it shows any.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/run_records.h"

namespace evenkeel {

/// One thing that differs. Runs of equal value stand together, in the order of the report.
struct Difference {
  struct Side {
    std::string value;  ///< "not known" where the records do not say
    std::vector<std::string> runs;
  };
  std::string what;
  std::vector<Side> sides;
};

/// compute_dtype, storage of the base, threads, processor, torch, program, model files, data files, gating, simulated
/// client profiles, rows scored; and the seeds, when configs that differ by more than the seed were not run with the
/// same ones. Nothing for one run.
std::vector<Difference> differences(std::span<const RunRecords> runs);

/// A title and one line each; empty when there are none.
std::string differences_text(std::span<const RunRecords> runs);

}  // namespace evenkeel
