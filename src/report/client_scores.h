/// \file  Compares clients by the scores of `evaluate.per_client`: which clients have better and which have worse
/// scores after the run. "Own rows" are a client's own test rows; "all rows" are the test rows of all clients. Both are
/// scored at the client's budget: the share of the experts per token that the client can afford, 0 to 1.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "records/run_records.h"
#include "report/table.h"

namespace evenkeel::report {

/// The scores of one client in one run, for one task and one rank evaluation mode (docs/glossary.md).
struct ClientResult {
  int64_t id = 0;
  std::string who;  ///< "3", or "3 (hospital)"
  std::string task;
  std::string rank_eval_mode;                ///< rank evaluation mode, "a" or "b"; empty: the method has none
  double budget = 1;                         ///< the client's budget, 0 to 1
  std::optional<scoring::TaskScore> before;  ///< score on its own rows before the first round
  std::optional<scoring::TaskScore> own;     ///< score on its own rows after the last evaluated round
  std::optional<scoring::TaskScore> all;     ///< score on all rows after the last evaluated round

  /// Returns the gain on own rows from before the first round to the last evaluated one, see gain_between(). Above 0 is
  /// better. Returns nothing if either score is missing.
  std::optional<double> gain() const;
};

/// Returns the headline measure of the score's kind (scoring/measures.h), shares in percent; 0 if the score lacks it.
double headline(const scoring::TaskScore& score);
/// Returns how much better `to` is than `from`, in the unit of headline(). Above 0 is better.
double gain_between(const scoring::TaskScore& from, const scoring::TaskScore& to);

/// Collects the results of all clients, sorted by task, then rank evaluation mode, then falling gain. Without scores
/// from before, the score on own rows takes the place of the gain. Scores that belong to no client are ignored. If only
/// the state before the first round was evaluated, its scores are in `own` and `all`.
std::vector<ClientResult> client_results(std::span<const fed::EvaluationRecord> evaluations);

/// Returns the number of questions that a score is based on, at least 1.
int64_t questions_of(const scoring::TaskScore& score);

/// Counts clients that gain or lose more than one question, or stay within one. If the measure is no share, every
/// difference counts as a gain or a loss.
struct GainCounts {
  int64_t gain = 0, lose = 0, within = 0;

  /// Counts a gain from gain_between(). \param score  one of the two scores
  void add(double gain, const scoring::TaskScore& score);
  std::string text() const;  ///< "3 gain, 1 lose, 2 within one question"
};

/// The scores on own rows in one run and rank evaluation mode.
struct RunClientScores {
  std::string label;  ///< label of the run, with the mode
  size_t run = 0;     ///< index of the run
  std::vector<ClientResult> results;

  /// Returns the result of the same client and task, or null.
  const ClientResult* find(const ClientResult& of) const;
};
/// Returns one entry per run and rank evaluation mode that has scores on own rows, in the order of the runs.
std::vector<RunClientScores> run_client_scores(std::span<const records::RunRecords> runs);

/// Returns a line per task and rank evaluation mode with the numbers of clients that gain, lose, or change by at most
/// one question, and the mean scores. Empty if no client is scored.
std::vector<std::string> clients_summary(const records::RunRecords& run);

/// Makes a table per run: for each client its own rows before and after, the gain, all rows, and the number of
/// questions. For several runs it adds a table that compares clients' own rows, with differences from the first run.
std::vector<Table> client_scores_tables(std::span<const records::RunRecords> runs);
/// Makes the tables of one evaluation; none if no client is scored.
std::vector<Table> client_scores_tables(std::span<const scoring::TaskScore> scores);

}  // namespace evenkeel::report
