/// \file  Computes the costs of a budget that the paper's tables print: bytes per client and round, parameters, FLOPs.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "report/run_records.h"

namespace evenkeel::study {

/// Computes a cost of the clients of one budget of a run.
using BudgetCost = std::function<std::optional<double>(const report::RunRecords& run, double budget)>;

/// Returns the cost of that name, or an empty function if the name is not one of a cost:
///
///   bytes_up, bytes_down   MiB that a client sends or receives per round, mean over rounds and clients
///   activated_parameters   trained parameters that one token uses, from the shapes of the base model
///   pass_flops             counted FLOPs of a forward and backward pass, per 256 tokens
///
/// A cost is empty if no client of that budget took part. activated_parameters reads the base model's config.json.
BudgetCost budget_cost(std::string_view name);

}  // namespace evenkeel::study
