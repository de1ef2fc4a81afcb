/// \file  Computes the measures of a run, other than scores, that the paper's tables and figures show: bytes,
/// parameters and FLOPs of a budget, use of experts, alignment of pseudo-gradients.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "comparison/compared_runs.h"
#include "records/run_records.h"
#include "report/table.h"
#include "study/paper/paper_tables.h"

namespace evenkeel::study {

/// Computes a cost of the clients of one budget of a run.
using BudgetCost = std::function<std::optional<double>(const records::RunRecords& run, double budget)>;

/// Returns the cost of that name, or an empty function if there is none:
///
///   bytes_up, bytes_down   MiB that a client sends or receives per round, mean over rounds and clients
///   activated_parameters   trained parameters that one token uses, from the shapes of the base model
///   pass_flops             counted FLOPs of a forward and backward pass, per 256 tokens
///   flops_share            pass_flops divided by pass_flops at budget 1
///   client_flops           counted FLOPs of a client per round
///   aggregate_seconds      measured seconds of the server per round, the same at every budget
///
/// and the measures of experts, which are the same at every budget (study/paper/paper_experts.h). The function returns
/// nothing if no client of that budget took part; client_flops also if one withholds its work. activated_parameters
/// reads the base model's config.json.
BudgetCost budget_cost(std::string_view name);
/// Returns true if the cost of that name is a count: bytes, parameters or FLOPs, but no seconds and no use of experts.
bool is_counted(std::string_view name);

/// Returns the tables of FLOPs and measured seconds at every K that follow a table of the paper, one for each study
/// that has arms of the table; none unless table.cost_by_k.
std::vector<report::Table> paper_costs_by_k(const PaperTable& table, std::span<const comparison::StudyRuns> studies);

}  // namespace evenkeel::study
