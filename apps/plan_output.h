/// \file  Prints what a run needs, for `evenkeel doctor`.
#pragma once

#include <string>

#include "base/system/machine.h"
#include "models/memory_plan.h"

namespace evenkeel::apps {

inline constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// Returns a number with this many decimals, right-aligned in `width` characters.
std::string fixed(double value, int decimals, int width = 0);

/// Prints the parts of a plan, their sum and the mapped files. \param what  the title of the table
void print_parts(const std::string& what, const models::MemoryPlan& plan);
/// Prints the same, what is available, and whether the run fits.
void print_plan(const std::string& what, const models::MemoryPlan& plan, const machine::Memory& memory);

}  // namespace evenkeel::apps
