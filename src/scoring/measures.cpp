#include "scoring/measures.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::scoring {
namespace {

/// Returns a member of scores of one kind.
template <AnswerKind kKind, auto kMember>
std::optional<double> of_kind(const TaskScore& score) {
  if (score.kind != kKind) return std::nullopt;
  return score.*kMember;
}

/// Returns the log-likelihood of the correct answer.
std::optional<double> log_likelihood(const TaskScore& score) { return score.log_likelihood; }

/// Returns nothing if no answer was readable. The record then holds 0.
std::optional<double> accuracy_valid(const TaskScore& score) {
  if (score.kind != AnswerKind::kChoice || score.invalid_rate >= 1) return std::nullopt;
  return score.accuracy_valid;
}

template <auto kMember>
std::vector<double> items_in(const ItemScores& items) {
  return {(items.*kMember).begin(), (items.*kMember).end()};
}

constexpr auto kChoice = AnswerKind::kChoice, kText = AnswerKind::kText, kLikelihood = AnswerKind::kLikelihood;
constexpr std::array kMeasures{
    Measure{"log_likelihood", "log-likelihood of the correct answer, nats per row", true, false, log_likelihood,
            items_in<&ItemScores::log_likelihood>},
    Measure{"accuracy", "accuracy, percent of rows", true, true, of_kind<kChoice, &TaskScore::accuracy>,
            items_in<&ItemScores::correct>},
    Measure{"invalid_rate", "answers that cannot be read, percent of rows", false, true,
            of_kind<kChoice, &TaskScore::invalid_rate>},
    Measure{"accuracy_valid", "accuracy among readable answers, percent", true, true, accuracy_valid},
    Measure{"accuracy_likelihood", "accuracy by likelihood of the allowed answers, percent", true, true,
            of_kind<kChoice, &TaskScore::accuracy_likelihood>},
    Measure{"f1", "F1 of words, percent", true, true, of_kind<kText, &TaskScore::f1>, items_in<&ItemScores::f1>},
    Measure{"exact_match", "exact match, percent of rows", true, true, of_kind<kText, &TaskScore::exact_match>,
            items_in<&ItemScores::correct>},
    Measure{"bert_score", "BERTScore F1, percent", true, true, of_kind<kText, &TaskScore::bert_score>},
    Measure{"empty_rate", "empty answers, percent of rows", false, true, of_kind<kText, &TaskScore::empty_rate>},
    Measure{"nll", "negative log-likelihood per answer token, nats", false, false,
            of_kind<kLikelihood, &TaskScore::nll>},
    Measure{"perplexity", "perplexity of the answers", false, false, of_kind<kLikelihood, &TaskScore::perplexity>}};

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

std::vector<std::string_view> measures_in(std::span<const TaskScore> scores) {
  std::vector<std::string_view> found;
  for (const auto& measure : kMeasures)
    if (std::any_of(scores.begin(), scores.end(),
                    [&](const TaskScore& score) { return measure.of(score).has_value(); }))
      found.push_back(measure.name);
  return found;
}

}  // namespace evenkeel::scoring
