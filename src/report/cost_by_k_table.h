/// \file  Makes the table of the costs of training by experts per token.
#pragma once

#include <span>

#include "comparison/cost_by_k.h"
#include "report/table.h"

namespace evenkeel::report {

/// Makes a table of the costs. Where an arm has no client of some K, the cell says so.
Table cost_by_k_table(std::span<const comparison::CostOfK> costs);

}  // namespace evenkeel::report
