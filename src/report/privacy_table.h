/// \file  Makes tables of the privacy budgets that runs spent, and of the signal that their noise left.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>

#include "records/run_records.h"
#include "report/table.h"

namespace evenkeel::report {

/// Differential privacy after a round: of the round's clients if privacy.unit is "client", otherwise each value is the
/// worst over the clients that protect single rows.
struct RoundPrivacy {
  std::string protects;  ///< "clients" or "rows"
  /// Epsilon spent so far at delta, and the noise multiplier.
  double epsilon = 0, delta = 0, noise = std::numeric_limits<double>::infinity();
  double clip = 0;                      ///< bound on the norm of a client's change or of a row's gradient
  std::optional<double> signal{};       ///< norm of the sum divided by the norm of its noise
  bool simulated = false;               ///< true: the noise protects nobody
  std::string ended{};                  ///< privacy limit that ended the run with this round; empty: none
  std::optional<double> epsilon_pld{};  ///< epsilon by the privacy loss distribution, for comparison only
};
/// Returns the privacy of a round; nothing if the round was not private.
std::optional<RoundPrivacy> privacy_of(const fed::RoundRecord& round);

/// Makes the table of private rounds. Epsilons of simulated runs are in brackets.
/// \param all_rounds  true: a line per private round; false: a line per run whose last round is private
Table privacy_table(std::span<const records::RunRecords> runs, bool all_rounds);

}  // namespace evenkeel::report
