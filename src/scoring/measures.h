/// \file  Lists the measures of a task's score. This is the only list: configs, merging of clients' scores, best
/// rounds, event files, tables, comparisons and the page iterate it. To add a measure, add a member to TaskScore and
/// one entry to the list in measures.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/file_sets.h"
#include "scoring/task_score.h"

namespace evenkeel::scoring {

/// All kinds of answers, in the order of tables.
inline constexpr std::array kAnswerKinds{AnswerKind::kChoice, AnswerKind::kText, AnswerKind::kLikelihood};

/// Selects what an evaluation needs, besides rows, to compute a measure.
enum class MeasureNeeds {
  kNothing,
  kLikelihood,  ///< evaluate.likelihood; tasks of AnswerKind::kLikelihood always compute it
  kEncoder,     ///< evaluate.bert_score.encoder
};

/// Selects how values of several clients' rows become the value of all rows (fed/exchange/merged_score.h).
enum class MeasureMerging {
  kCountOfRows,        ///< a share of rows; merged as counts, so the result is exact
  kMeanOfRows,         ///< a mean over rows
  kCountOfReadable,    ///< a share of the rows with a readable answer
  kMeanOfLikelihoods,  ///< a mean over TaskScore::likelihood_rows
  kMeanOfTokens,       ///< a mean over TaskScore::answer_tokens
  kExponentialOfNll,   ///< follows from the merged TaskScore::nll
  kNone,               ///< not merged
};

/// A measure of a task's score.
struct Measure {
  std::string_view name;           ///< as in evaluations.jsonl, for example "log_likelihood"
  std::string_view short_title;    ///< head of a column, at most 7 characters, without the unit
  std::string_view title;          ///< with the unit
  std::optional<AnswerKind> kind;  ///< kind of the tasks that have the measure; nullopt: all kinds
  bool higher_is_better = true;
  bool is_share = true;  ///< a share from 0 to 1, printed in percent
  MeasureNeeds needs = MeasureNeeds::kNothing;
  MeasureMerging merging = MeasureMerging::kCountOfRows;
  /// Returns the value; nullopt if the score does not have it.
  std::optional<double> (*of)(const TaskScore&) = nullptr;
  /// Sets the value. nullopt removes an optional value and sets any other value to 0.
  void (*set)(TaskScore&, std::optional<double> value) = nullptr;
  /// Returns the values of single rows; their mean is the measure. Null: values of single rows are not recorded.
  std::vector<double> (*items)(const ItemScores&) = nullptr;

  /// Returns true if tasks with that kind of answers are scored by this measure.
  /// \param likelihood  evaluate.likelihood \param encoder  an encoder for BERTScore is given
  bool is_of(AnswerKind task, bool likelihood = true, bool encoder = true) const;
  /// Returns true if `one` is a better value than `other`.
  bool is_better(double one, double other) const { return higher_is_better ? one > other : one < other; }
};

/// Returns all measures in the order of tables. The first is the default measure of comparisons (endpoint).
std::span<const Measure> measures();
/// Returns a measure. \throws kConfig listing the names when it is unknown
const Measure& find_measure(std::string_view name);
/// Returns the measures that at least one of the scores has, in the order of the list.
std::vector<const Measure*> measures_of(std::span<const TaskScore> scores);
/// Returns the names of measures_of(scores).
std::vector<std::string_view> measures_in(std::span<const TaskScore> scores);
/// Returns the measure to show for a kind of tasks if there is space for one: the first that only this kind has.
const Measure& headline_of(AnswerKind kind);
/// Returns the kind of answers that a way of scoring has.
AnswerKind kind_of(data::Scoring scoring);

/// Names a measure in configs and records. The value is its place in measures(); the default is the first.
enum class MeasureName : size_t {};
std::vector<config::EnumName<MeasureName>> names(MeasureName);
/// Returns the measure that `name` stands for.
const Measure& measure_of(MeasureName name);

/// Returns the distinct values of a member among `scores`, in order of appearance.
template <typename T>
std::vector<T> distinct(std::span<const TaskScore> scores, T TaskScore::*member) {
  std::vector<T> values;
  for (const auto& score : scores)
    if (std::find(values.begin(), values.end(), score.*member) == values.end()) values.push_back(score.*member);
  return values;
}

}  // namespace evenkeel::scoring
