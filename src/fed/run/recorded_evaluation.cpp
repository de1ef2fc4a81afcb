#include "fed/run/recorded_evaluation.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/plain/log.h"
#include "base/system/events.h"
#include "fed/run/state_evaluation.h"
#include "fed/store/round_records.h"

namespace evenkeel::fed {
namespace {

std::vector<scoring::TaskScore> known_scores(const RunFolder& folder, int64_t round) {
  std::vector<scoring::TaskScore> scores;
  for (const auto& line : folder.evaluations())
    if (line.view().at("round").integer() == round) scores.push_back(record::read<EvaluationRecord>(line.view()).score);
  return scores;
}

std::optional<scoring::TaskScore> known_score(std::span<const scoring::TaskScore> scores, const EvaluationPoint& point,
                                              const std::string& task) {
  for (const auto& score : scores)
    if (score.is_complete() && score.budget == point.budget && score.rank_eval_mode == point.rank_eval_mode &&
        score.served_by == point.served_by && score.client == point.client && score.task == task)
      return score;
  return std::nullopt;
}

class EvaluationLine {
 public:
  explicit EvaluationLine(const StopRequest& stop) : stop_(stop) {}
  void show_rows(const std::string& task, double budget, int64_t done, int64_t rows) {
    show(task, concat(task, " at budget ", budget, ", ", done, "/", rows, " rows"),
         evaluation_progress(task, budget, done, rows));
  }
  void show_clients(const std::string& task, double budget, int64_t done, int64_t clients) {
    show(task, concat(task, " at budget ", budget, ", scores of ", done, "/", clients, " clients"),
         {{"phase", "evaluate"}, {"task", task}, {"budget", budget}, {"clients_done", done}, {"clients", clients}});
  }

 private:
  void show(const std::string& task, const std::string& line, OrderedJson event) {
    line_.update(line);
    if (events::take_progress_turn()) events::write("progress", std::move(event));
    if (stop_ && stop_()) throw Interrupted(concat("stopped while evaluating ", task));
  }

  const StopRequest& stop_;
  log::Progress line_{"evaluate"};
};

void note_missing(const ScoredRun& run, MissingScore missing) {
  missing.name = run.server.config->clients.name(missing.client);
  log::warning("[evaluate] after round ", missing.round, ": no score of ", missing.task, " at budget ", missing.budget,
               " by ", run.server.config->clients.who(missing.client), ": ", missing.reason);
  run.folder.add_missing(missing);
  events::write("missing_score", record::write(missing));
}

ItemRecord item_record(int64_t round, const scoring::TaskScore& score, const scoring::ItemScores& items) {
  return {round, score.task, score.budget, score.rank_eval_mode, score.served_by, score.client, items};
}

/// Removes the items of scores that will be computed again.
void keep_items_of(const RunFolder& folder, int64_t round, std::span<const scoring::TaskScore> known) {
  folder.keep_items(round, [&](const ItemRecord& items) {
    return std::any_of(known.begin(), known.end(), [&](const scoring::TaskScore& score) {
      return score.is_complete() && items.same_score(item_record(round, score, {}));
    });
  });
}

}  // namespace

std::vector<scoring::TaskScore> evaluate_round(const ScoredRun& run, const methods::ServerState& state) {
  const auto& server = run.server;
  const auto known = known_scores(run.folder, state.round);
  keep_items_of(run.folder, state.round, known);
  EvaluationLine progress(run.stop);
  auto scores = evaluate_state(
      server, run.fabric, state,
      {.known = [&](const EvaluationPoint& point, const std::string& task) { return known_score(known, point, task); },
       .on_progress = [&](const auto&... done) { progress.show_rows(done...); },
       .on_clients = [&](const auto&... done) { progress.show_clients(done...); },
       .on_score =
           [&](const Scored& scored) {
             if (scored.items) run.folder.add_items(item_record(state.round, scored.score, *scored.items));
             const EvaluationRecord record{state.round, server.config->method.name, scored.score};
             run.folder.add_evaluation(record);
             run.tensorboard.add(record);
             events::write("evaluation", record::write(record));
           },
       .on_missing =
           [&](const EvaluationPoint& point, const std::string& task, int64_t client, const std::string& why) {
             const auto rows = point.own_rows() ? scoring::RowsOf::kOwn : scoring::RowsOf::kAll;
             note_missing(run, {state.round, task, point.budget, point.rank_eval_mode, rows, client, {}, why});
           }});
  run.folder.answers()->finish();
  return scores;
}

}  // namespace evenkeel::fed
