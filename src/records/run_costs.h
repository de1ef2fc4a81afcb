/// \file  Sums the costs of a run over its rounds.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "records/run_records.h"

namespace evenkeel::records {

/// Costs of all rounds of a run, from rounds.jsonl.
struct Cost {
  double bytes_up = 0, bytes_down = 0;      ///< of all clients and rounds
  std::optional<double> flops{}, tokens{};  ///< of training, all rounds; empty if withholds_work() is true of a round
  double seconds = 0;                       ///< measured, of all rounds, without evaluations
  std::optional<double> simulated;  ///< seconds at the end of the last round; set if clients have machine profiles
};
Cost cost_of(const RunRecords& run);

/// Returns true if a round does not tell the tokens and FLOPs of all its clients, to protect them or their rows.
bool withholds_work(const fed::RoundRecord& round);

/// A cost by name.
struct CostMeasure {
  std::string_view name, title;
  std::optional<double> (*of)(const Cost&);
};
/// Returns all cost measures in the order of tables.
std::span<const CostMeasure> cost_measures();

}  // namespace evenkeel::records
