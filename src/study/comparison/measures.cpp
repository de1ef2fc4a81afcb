#include "study/comparison/measures.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::study {
namespace {

/// Returns a member of scores of one kind.
template <scoring::AnswerKind kKind, auto kMember>
std::optional<double> of_kind(const scoring::TaskScore& score) {
  if (score.kind != kKind) return std::nullopt;
  return score.*kMember;
}

/// Returns the log-likelihood of the correct answer.
std::optional<double> log_likelihood(const scoring::TaskScore& score) { return score.log_likelihood; }

/// Returns nothing if no answer was readable. The record then holds 0.
std::optional<double> accuracy_valid(const scoring::TaskScore& score) {
  if (score.kind != scoring::AnswerKind::kChoice || score.invalid_rate >= 1) return std::nullopt;
  return score.accuracy_valid;
}

template <auto kMember>
std::vector<double> items_in(const scoring::ItemScores& items) {
  return {(items.*kMember).begin(), (items.*kMember).end()};
}

constexpr auto kChoice = scoring::AnswerKind::kChoice, kText = scoring::AnswerKind::kText,
               kLikelihood = scoring::AnswerKind::kLikelihood;
constexpr std::array kMeasures{
    Measure{"log_likelihood", "log-likelihood of the correct answer, nats per row", true, false, log_likelihood,
            items_in<&scoring::ItemScores::log_likelihood>},
    Measure{"accuracy", "accuracy, percent of rows", true, true, of_kind<kChoice, &scoring::TaskScore::accuracy>,
            items_in<&scoring::ItemScores::correct>},
    Measure{"invalid_rate", "answers that cannot be read, percent of rows", false, true,
            of_kind<kChoice, &scoring::TaskScore::invalid_rate>},
    Measure{"accuracy_valid", "accuracy among readable answers, percent", true, true, accuracy_valid},
    Measure{"accuracy_likelihood", "accuracy by likelihood of the allowed answers, percent", true, true,
            of_kind<kChoice, &scoring::TaskScore::accuracy_likelihood>},
    Measure{"f1", "F1 of words, percent", true, true, of_kind<kText, &scoring::TaskScore::f1>,
            items_in<&scoring::ItemScores::f1>},
    Measure{"exact_match", "exact match, percent of rows", true, true, of_kind<kText, &scoring::TaskScore::exact_match>,
            items_in<&scoring::ItemScores::correct>},
    Measure{"bert_score", "BERTScore F1, percent", true, true, of_kind<kText, &scoring::TaskScore::bert_score>},
    Measure{"empty_rate", "empty answers, percent of rows", false, true,
            of_kind<kText, &scoring::TaskScore::empty_rate>},
    Measure{"nll", "negative log-likelihood per answer token, nats", false, false,
            of_kind<kLikelihood, &scoring::TaskScore::nll>},
    Measure{"perplexity", "perplexity of the answers", false, false,
            of_kind<kLikelihood, &scoring::TaskScore::perplexity>}};

template <auto kMember>
std::optional<double> cost(const Cost& cost) {
  return cost.*kMember;
}

constexpr std::array kCosts{CostMeasure{"bytes_up", "bytes up", cost<&Cost::bytes_up>},
                            CostMeasure{"bytes_down", "bytes down", cost<&Cost::bytes_down>},
                            CostMeasure{"flops", "FLOPs", cost<&Cost::flops>},
                            CostMeasure{"tokens", "tokens", cost<&Cost::tokens>},
                            CostMeasure{"seconds", "seconds", cost<&Cost::seconds>},
                            CostMeasure{"simulated_seconds", "simulated s", cost<&Cost::simulated>}};

/// Returns the wall time of a round. Older records have the phases only.
double wall_seconds(const fed::PhaseSeconds& phases) {
  return phases.round.value_or(phases.broadcast + phases.train + phases.upload + phases.aggregate);
}

}  // namespace

std::span<const Measure> measures() { return kMeasures; }

const Measure& find_measure(std::string_view name) {
  const auto found =
      std::find_if(kMeasures.begin(), kMeasures.end(), [&](const Measure& measure) { return measure.name == name; });
  std::vector<std::string_view> names;
  for (const auto& measure : kMeasures) names.push_back(measure.name);
  EK_CHECK(found != kMeasures.end(), kConfig, "endpoint \"", shown(std::string(name)),
           "\" is not known, allowed: ", join(names));
  return *found;
}

std::vector<std::string_view> measures_in(std::span<const scoring::TaskScore> scores) {
  std::vector<std::string_view> found;
  for (const auto& measure : kMeasures)
    if (std::any_of(scores.begin(), scores.end(),
                    [&](const scoring::TaskScore& score) { return measure.of(score).has_value(); }))
      found.push_back(measure.name);
  return found;
}

Cost cost_of(const report::RunRecords& run) {
  Cost cost;
  for (const auto& round : run.rounds) {
    cost.bytes_up += static_cast<double>(round.bytes_up);
    cost.bytes_down += static_cast<double>(round.bytes_down);
    cost.flops += round.flops;
    cost.tokens += static_cast<double>(round.tokens);
    cost.seconds += wall_seconds(round.seconds);
    if (round.simulated) cost.simulated = round.simulated->end;
  }
  return cost;
}

std::span<const CostMeasure> cost_measures() { return kCosts; }

}  // namespace evenkeel::study
