#include "scoring/measures.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::scoring {
namespace {

constexpr auto kChoice = AnswerKind::kChoice, kText = AnswerKind::kText, kLikelihood = AnswerKind::kLikelihood;

template <AnswerKind kKind, auto kMember>
std::optional<double> of_kind(const TaskScore& score) {
  if (score.kind != kKind) return std::nullopt;
  return score.*kMember;
}

template <auto kMember>
void set(TaskScore& score, std::optional<double> value) {
  if constexpr (std::is_same_v<decltype(score.*kMember), double&>)
    score.*kMember = value.value_or(0);
  else
    score.*kMember = value;
}

std::optional<double> log_likelihood(const TaskScore& score) { return score.log_likelihood; }

/// Returns nothing if no answer was readable. The record then holds 0.
std::optional<double> accuracy_valid(const TaskScore& score) {
  if (score.kind != kChoice || score.invalid_rate >= 1) return std::nullopt;
  return score.accuracy_valid;
}

/// Returns nothing if the answers were not ranked. The record then holds 0.
std::optional<double> accuracy_likelihood(const TaskScore& score) {
  const bool ranked = score.likelihood_rows || score.accuracy_likelihood > 0;
  if (score.kind != kChoice || !ranked) return std::nullopt;
  return score.accuracy_likelihood;
}

template <auto kMember>
std::vector<double> items_in(const ItemScores& items) {
  return {(items.*kMember).begin(), (items.*kMember).end()};
}

constexpr std::array kMeasures{Measure{.name = "log_likelihood",
                                       .short_title = "log-lik",
                                       .title = "log-likelihood of the correct answer, nats per row",
                                       .kind = {},
                                       .is_share = false,
                                       .needs = MeasureNeeds::kLikelihood,
                                       .merging = MeasureMerging::kMeanOfLikelihoods,
                                       .of = log_likelihood,
                                       .set = set<&TaskScore::log_likelihood>,
                                       .items = items_in<&ItemScores::log_likelihood>},
                               Measure{.name = "accuracy",
                                       .short_title = "acc",
                                       .title = "accuracy, percent of rows",
                                       .kind = kChoice,
                                       .of = of_kind<kChoice, &TaskScore::accuracy>,
                                       .set = set<&TaskScore::accuracy>,
                                       .items = items_in<&ItemScores::correct>},
                               Measure{.name = "invalid_rate",
                                       .short_title = "inv",
                                       .title = "answers that cannot be read, percent of rows",
                                       .kind = kChoice,
                                       .higher_is_better = false,
                                       .of = of_kind<kChoice, &TaskScore::invalid_rate>,
                                       .set = set<&TaskScore::invalid_rate>},
                               Measure{.name = "accuracy_valid",
                                       .short_title = "val",
                                       .title = "accuracy among readable answers, percent",
                                       .kind = kChoice,
                                       .merging = MeasureMerging::kCountOfReadable,
                                       .of = accuracy_valid,
                                       .set = set<&TaskScore::accuracy_valid>},
                               Measure{.name = "accuracy_likelihood",
                                       .short_title = "lik",
                                       .title = "accuracy by likelihood of the allowed answers, percent",
                                       .kind = kChoice,
                                       .needs = MeasureNeeds::kLikelihood,
                                       .of = accuracy_likelihood,
                                       .set = set<&TaskScore::accuracy_likelihood>},
                               Measure{.name = "f1",
                                       .short_title = "F1",
                                       .title = "F1 of words, percent",
                                       .kind = kText,
                                       .merging = MeasureMerging::kMeanOfRows,
                                       .of = of_kind<kText, &TaskScore::f1>,
                                       .set = set<&TaskScore::f1>,
                                       .items = items_in<&ItemScores::f1>},
                               Measure{.name = "exact_match",
                                       .short_title = "EM",
                                       .title = "exact match, percent of rows",
                                       .kind = kText,
                                       .of = of_kind<kText, &TaskScore::exact_match>,
                                       .set = set<&TaskScore::exact_match>,
                                       .items = items_in<&ItemScores::correct>},
                               Measure{.name = "bert_score",
                                       .short_title = "bert",
                                       .title = "BERTScore F1, percent",
                                       .kind = kText,
                                       .needs = MeasureNeeds::kEncoder,
                                       .merging = MeasureMerging::kNone,
                                       .of = of_kind<kText, &TaskScore::bert_score>,
                                       .set = set<&TaskScore::bert_score>},
                               Measure{.name = "empty_rate",
                                       .short_title = "empty",
                                       .title = "empty answers, percent of rows",
                                       .kind = kText,
                                       .higher_is_better = false,
                                       .of = of_kind<kText, &TaskScore::empty_rate>,
                                       .set = set<&TaskScore::empty_rate>},
                               Measure{.name = "nll",
                                       .short_title = "nll",
                                       .title = "negative log-likelihood per answer token, nats",
                                       .kind = kLikelihood,
                                       .higher_is_better = false,
                                       .is_share = false,
                                       .merging = MeasureMerging::kMeanOfTokens,
                                       .of = of_kind<kLikelihood, &TaskScore::nll>,
                                       .set = set<&TaskScore::nll>},
                               Measure{.name = "perplexity",
                                       .short_title = "ppl",
                                       .title = "perplexity of the answers",
                                       .kind = kLikelihood,
                                       .higher_is_better = false,
                                       .is_share = false,
                                       .merging = MeasureMerging::kExponentialOfNll,
                                       .of = of_kind<kLikelihood, &TaskScore::perplexity>,
                                       .set = set<&TaskScore::perplexity>}};

}  // namespace

bool Measure::is_of(AnswerKind task, bool likelihood, bool encoder) const {
  if (kind && *kind != task) return false;
  if (needs == MeasureNeeds::kEncoder) return encoder;
  return needs == MeasureNeeds::kNothing || likelihood || task == kLikelihood;
}

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

std::vector<const Measure*> measures_of(std::span<const TaskScore> scores) {
  std::vector<const Measure*> found;
  for (const auto& measure : kMeasures)
    if (std::any_of(scores.begin(), scores.end(),
                    [&](const TaskScore& score) { return measure.of(score).has_value(); }))
      found.push_back(&measure);
  return found;
}

std::vector<std::string_view> measures_in(std::span<const TaskScore> scores) {
  std::vector<std::string_view> names;
  for (const auto* measure : measures_of(scores)) names.push_back(measure->name);
  return names;
}

const Measure& headline_of(AnswerKind kind) {
  return *std::find_if(kMeasures.begin(), kMeasures.end(),
                       [&](const Measure& measure) { return measure.kind == kind; });
}

AnswerKind kind_of(data::Scoring scoring) {
  if (scoring == data::Scoring::kNll) return kLikelihood;
  return scoring == data::Scoring::kChoice ? kChoice : kText;
}

std::vector<config::EnumName<MeasureName>> names(MeasureName) {
  std::vector<config::EnumName<MeasureName>> all;
  for (const auto& measure : kMeasures) all.push_back({measure.name, MeasureName{all.size()}});
  return all;
}

const Measure& measure_of(MeasureName name) { return kMeasures.at(static_cast<size_t>(name)); }

}  // namespace evenkeel::scoring
