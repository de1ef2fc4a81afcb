#include "apps/score_writer.h"

#include <cerrno>
#include <iostream>

#include "base/plain/os_error.h"
#include "base/system/events.h"
#include "base/system/interrupt.h"
#include "fed/run/state_evaluation.h"
#include "fed/store/manifest.h"
#include "report/client_scores.h"
#include "report/score_table.h"

namespace evenkeel::apps {
namespace {

void add_likelihood(const scoring::Prediction& prediction, OrderedJson& json) {
  json["gold"] = prediction.gold;
  json["nll"] = prediction.nll;
  json["answer_tokens"] = prediction.answer_tokens;
}

void add_choice(const scoring::Prediction& prediction, OrderedJson& json) {
  json["gold"] = prediction.gold;
  json["extracted"] = prediction.extracted;
  json["ranked"] = prediction.ranked;
}

void add_text(const scoring::Prediction& prediction, OrderedJson& json) {
  json["references"] = prediction.references;
  json["exact_match"] = prediction.exact_match;
  json["f1"] = prediction.f1;
  if (prediction.bert_score) json["bert_score"] = *prediction.bert_score;
}

std::string line(const scoring::TaskScore& score, size_t index, const scoring::Prediction& prediction,
                 bool has_question) {
  OrderedJson json{{"task", score.task}, {"budget", score.budget}};
  json["row"] = prediction.row < 0 ? static_cast<int64_t>(index) : prediction.row;
  if (!prediction.file.empty()) json["file"] = prediction.file;
  if (has_question) json["question"] = prediction.question;
  if (!score.rank_eval_mode.empty()) json["rank_eval_mode"] = score.rank_eval_mode;
  if (score.served_by != scoring::ServedBy::kRun) json["served_by"] = config::name_of(score.served_by);
  if (score.kind == scoring::AnswerKind::kLikelihood)
    add_likelihood(prediction, json);
  else
    score.kind == scoring::AnswerKind::kText ? add_text(prediction, json) : add_choice(prediction, json);
  if (score.kind != scoring::AnswerKind::kLikelihood) json["output"] = prediction.output;
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

ScoreWriter::ScoreWriter(const EvaluateFlags& flags)
    : json_(flags.json),
      is_journalled_(!flags.journal.empty()),
      has_questions_(flags.questions),
      file_(flags.predictions),
      progress_("evaluate") {}

void ScoreWriter::progress(const std::string& task, double budget, int64_t done, int64_t rows) {
  open_predictions();
  if (interrupt_requested()) stop("interrupted");
  progress_.update(concat(task, " at budget ", budget, ": ", done, " of ", rows, " rows"));
  if (events::take_progress_turn()) events::write("progress", fed::evaluation_progress(task, budget, done, rows));
}

void ScoreWriter::score(const scoring::TaskScore& score, std::span<const scoring::Prediction> predictions) {
  events::write("evaluation", record::write(score));
  if (json_) std::cout << record::write(score).dump() << std::endl;
  scores_.push_back(score);
  open_predictions();
  for (size_t row = 0; predictions_.is_open() && row < predictions.size(); ++row)
    predictions_ << line(score, row, predictions[row], has_questions_) << '\n';
  predictions_.flush();
  check_predictions();
}

void ScoreWriter::stop(std::string_view why) const {
  throw Interrupted(
      concat(why, is_journalled_ ? "; the same command goes on with it" : "; the evaluation has to be started again"));
}

void ScoreWriter::finish() const {
  if (json_ || events::wanted()) return;
  std::cout << report::score_text(scores_);
  const auto of_clients = report::client_scores_tables(scores_);
  if (!of_clients.empty()) std::cout << '\n' << report::text_of(of_clients);
}

/// Opens the file. Called when there are answers, so that a command that is rejected earlier does not change the file.
void ScoreWriter::open_predictions() {
  if (file_.empty() || predictions_.is_open()) return;
  predictions_.open(file_);
  check_predictions();
}

void ScoreWriter::check_predictions() const {
  EK_CHECK(predictions_.good(), kIo, file_, " cannot be written: ", os_error_text(errno));
}

}  // namespace evenkeel::apps
