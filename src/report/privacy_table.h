/// \file  Tables of what runs spent of their privacy budgets, and of how much signal their noise left.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>

#include "records/run_records.h"
#include "report/table.h"

namespace evenkeel::report {

/// What a round says of privacy: of its clients, or the worst of those that are private for single rows.
struct RoundPrivacy {
  std::string protects;  ///< "clients" or "rows"
  double epsilon = 0, delta = 0, noise = std::numeric_limits<double>::infinity();
  double clip = 0;
  std::optional<double> signal{};   ///< norm of the sum divided by that of its noise
  bool simulated = false;           ///< true: it protects nobody
  std::string ended{};              ///< what ended the run; empty: nothing of privacy
  std::optional<double> by_loss{};  ///< epsilon of the loss distribution
};
/// Returns what a round says of privacy; nothing if it was not private.
std::optional<RoundPrivacy> privacy_of(const fed::RoundRecord& round);

/// Returns a line per private round, or per run with its last private round. Values of simulated runs are in brackets.
/// \param all_rounds  true: all rounds
Table privacy_table(std::span<const records::RunRecords> runs, bool all_rounds);

}  // namespace evenkeel::report
