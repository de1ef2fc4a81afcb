/// \file  Who gains and who loses: what `evaluate.per_client` scored, client by client. Own rows are a client's own
/// test rows, scored at its budget; all rows are those of every client together, at that budget too.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/run_records.h"

namespace evenkeel {

/// One client in one run, of one task and one reading of its budget.
struct ClientResult {
  int64_t id = 0;
  std::string who;  ///< "3", or "3 (hospital)"
  std::string task, reading;
  double budget = 1;
  std::optional<TaskScore> before, own;  ///< on its own rows: before the first round, after the last evaluated one
  std::optional<TaskScore> all;          ///< on all rows, after the last evaluated one

  /// What the rounds brought on its own rows, above 0 for the better, \see gain_between(). Nothing without a score of
  /// before.
  std::optional<double> gain() const;
};

/// The number that a score is compared by: accuracy or F1 of words, in percent, or the negative log-likelihood.
double headline(const TaskScore& score);
/// How much better `to` is than `from`, in the same unit.
double gain_between(const TaskScore& from, const TaskScore& to);

/// Sorted by gain, the largest first; without scores of before by the score on own rows. Scores that are no client's
/// count for nothing.
std::vector<ClientResult> client_results(std::span<const EvaluationRecord> evaluations);

/// How many gain, lose and stay within one question, for a line; empty without scores of clients.
std::string clients_summary(const RunRecords& run);

/// Per run: client by client own rows before and after, the difference, all rows, and what they rest on. Of several
/// runs also their own rows side by side, reading by reading of a rank method, with differences from the first.
std::string client_scores_table(std::span<const RunRecords> runs);
/// The same of one evaluation; empty without scores of clients.
std::string client_scores_table(std::span<const TaskScore> scores);

}  // namespace evenkeel
