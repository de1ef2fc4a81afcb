// Every measure of scoring/measures.h is in every table, log, merged score and comparison: a new entry of the list
// needs nothing else.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/format/event_file.h"
#include "base/plain/files.h"
#include "base/testing.h"
#include "comparison/comparison.h"
#include "comparison/testing.h"
#include "fed/exchange/merged_score.h"
#include "fed/run/event_log.h"
#include "records/testing.h"
#include "report/score_table.h"
#include "report/study_report.h"
#include "report/tables.h"

namespace evenkeel::report {
namespace {

/// Returns the kinds of tasks that have a measure.
std::vector<scoring::AnswerKind> kinds_of(const scoring::Measure& measure) {
  if (measure.kind) return {*measure.kind};
  return {scoring::kAnswerKinds.begin(), scoring::kAnswerKinds.end()};
}

/// Returns a score of that kind in which the measure alone has the value, a number that is no default.
scoring::TaskScore score_with(const scoring::Measure& measure, scoring::AnswerKind kind, double value = 0.375) {
  scoring::TaskScore score{.task = "t", .rows = 8, .questions = 8, .kind = kind};
  score.answer_tokens = 16;
  score.likelihood_rows = 8;
  score.log_likelihood = -1;
  measure.set(score, value);
  return score;
}

class EveryMeasure : public ::testing::TestWithParam<scoring::Measure> {};

TEST_P(EveryMeasure, IsInTheListWithAllThatTablesNeed) {
  const auto& measure = GetParam();
  EXPECT_EQ(&scoring::find_measure(measure.name),
            &scoring::measure_of(scoring::MeasureName{
                static_cast<size_t>(&scoring::find_measure(measure.name) - scoring::measures().data())}));
  EXPECT_LE(measure.short_title.size(), 7u);
  EXPECT_FALSE(measure.title.empty());
  for (const auto& other : scoring::measures())
    if (other.name != measure.name) {
      EXPECT_NE(other.short_title, measure.short_title);
    }
  for (const auto kind : scoring::kAnswerKinds) {
    const auto value = measure.of(score_with(measure, kind));
    EXPECT_EQ(value.has_value(), measure.is_of(kind));
    if (value) {
      EXPECT_EQ(*value, 0.375);
    }
  }
}

TEST_P(EveryMeasure, IsMerged) {
  const auto& measure = GetParam();
  for (const auto kind : kinds_of(measure)) {
    const auto value = measure.of(
        fed::merged(std::vector<fed::Scored>(2, {.score = score_with(measure, kind), .predictions = {}})).score);
    if (measure.merging == scoring::MeasureMerging::kNone)
      EXPECT_FALSE(value);
    else if (measure.merging == scoring::MeasureMerging::kExponentialOfNll)
      EXPECT_EQ(value, 1) << "of a negative log-likelihood of 0";
    else
      EXPECT_NEAR(value.value(), 0.375, 1e-12);
  }
}

TEST_P(EveryMeasure, HasATableAndAColumn) {
  const auto& measure = GetParam();
  const auto names = table_names();
  EXPECT_NE(std::find(names.begin(), names.end(), measure.name), names.end());
  const auto cell = measure.is_share ? "37.5" : "0.375";
  for (const auto kind : kinds_of(measure)) {
    records::RunRecords run;
    run.label = "run";
    run.evaluations.push_back({1, "fedit", score_with(measure, kind)});
    const std::vector<records::RunRecords> runs{run};
    for (const auto& text : {text_of(tables(runs, measure.name)), text_of(default_tables(runs)),
                             score_text(std::vector{score_with(measure, kind)})})
      EXPECT_NE(text.find(cell), text.npos) << text;
  }
}

TEST_P(EveryMeasure, CanBeAnEndpointAndStandsBesideOthers) {
  const auto& measure = GetParam();
  for (const auto kind : kinds_of(measure)) {
    auto study = testing::study_of({{"fedit", {-1, -2, -3}}, {"ub-smoe", {-1, -2, -3}}});
    for (auto& run : study.runs)
      for (auto& evaluation : run.records->evaluations)
        evaluation.score =
            score_with(measure, kind, run.arm == "fedit" ? 0.25 : 0.375 + 0.001 * static_cast<double>(run.seed - 1));
    study.endpoint = std::string(measure.name);
    const auto compared = comparison::compare(study);
    EXPECT_NE(compared.served[0].conclusions[0].find(measure.higher_is_better ? ", better)" : ", worse)"),
              std::string::npos)
        << compared.served[0].conclusions[0];
    EXPECT_NE(csv_report(study, compared).find(concat(',', measure.name, ",0.375,")), std::string::npos);
    EXPECT_NE(json_report(study, compared).find(concat('"', measure.name, '"')), std::string::npos);
    EXPECT_EQ(compared.beside.size() + 1, scoring::measures_of(std::vector{score_with(measure, kind)}).size());
  }
}

TEST_P(EveryMeasure, IsInTheEventFile) {
  const auto& measure = GetParam();
  const testing::TemporaryFolder temporary;
  testing::write_run(temporary.path() / "run", "[method]\nname = \"fedit\"\n");
  fed::EventLog log(temporary.path() / "run", true);
  for (const auto kind : kinds_of(measure)) log.add(fed::EvaluationRecord{1, "fedit", score_with(measure, kind)});
  size_t found = 0;
  for (const auto& event : read_event_file(temporary.path() / "run/tensorboard/events.out.tfevents.evenkeel"))
    for (const auto& scalar : event.scalars) found += scalar.tag.ends_with(concat('/', measure.name));
  EXPECT_EQ(found, kinds_of(measure).size());
}

TEST_P(EveryMeasure, CanChooseTheBestRound) {
  const auto toml = concat("[evaluate]\nkeep_best = true\nevery = 1\nbest = { measure = \"", GetParam().name,
                           "\" }\n[evaluate.bert_score]\nencoder = \"e\"\n[method]\nname = \"fedit\"\n");
  const auto config = fed::ExperimentConfig::read(config::Table::parse(toml, "test"));
  EXPECT_EQ(config::name_of(config.evaluate.best.measure), GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(Measures, EveryMeasure, ::testing::ValuesIn(scoring::measures()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace evenkeel::report
