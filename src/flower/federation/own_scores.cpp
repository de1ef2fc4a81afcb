#include "flower/federation/own_scores.h"

#include "fed/run/state_evaluation.h"
#include "flower/federation/agreement.h"
#include "flower/federation/scored_rows.h"

namespace evenkeel::flower {
namespace {

std::shared_ptr<const scoring::PreparedTask> rows_of(const fed::Experiment& e, const std::string& task, int64_t client,
                                                     int64_t limit) {
  return e.fabric.context.test_rows({.task = task, .own_of = client, .limit = limit});
}

/// Returns why the node gives no scores of a task, or an empty text.
std::string refusal(const scoring::PreparedTask& rows, const OwnerLimits& limits, const ScoredSet& set,
                    const std::filesystem::path& memory) {
  if (rows.questions() < limits.min_test_rows)
    return concat("it has ", rows.questions(), " different test rows, and gives scores of ", limits.min_test_rows,
                  " or more (--min-test-rows)");
  return ScoredRows(memory).refusal(set, limits.min_test_rows);
}

}  // namespace

OwnTestRows own_test_rows(const fed::Experiment& e, int64_t client, const OwnerLimits& limits, const std::string& files,
                          const std::filesystem::path& memory) {
  const auto& context = e.fabric.context;
  const auto& config = context.config;
  OwnTestRows own;
  if (!scores_clients_rows(config) || !config.plan(client).tests()) return own;
  const int64_t limit = config->evaluate.limit;
  EK_CHECK(limit == 0 || limit >= limits.min_test_rows, kConfig, "evaluate.limit is ", limit,
           " rows, and this node gives scores of ", limits.min_test_rows, " or more (--min-test-rows)");
  for (const auto& task : fed::client_tasks(e.server)) {
    const auto all = rows_of(e, task, client, 0), scored = rows_of(e, task, client, limit);
    scoring::check_task(*context.model, *all, context.evaluation());
    own.count = static_cast<int64_t>(all->rows().size());
    if (own.no_scores.empty()) own.no_scores = refusal(*scored, limits, set_of(scored->rows(), files), memory);
  }
  return own;
}

void remember_scored_rows(const fed::Experiment& e, const std::string& task, int64_t client, const OwnerLimits& limits,
                          const std::string& files, const std::filesystem::path& memory) {
  const auto rows = rows_of(e, task, client, e.server.config->evaluate.limit);
  const auto set = set_of(rows->rows(), files);
  const auto why = refusal(*rows, limits, set, memory);
  EK_CHECK(why.empty(), kConfig, "no score of this node's rows: ", why);
  ScoredRows(memory).add(set);
}

void keep_back_means_of_few(fed::Scored& scored, int64_t least) {
  auto& score = scored.score;
  const int64_t rows = score.likelihood_rows.value_or(0);
  if (rows == 0 || rows >= least) return;
  EK_CHECK(score.kind != scoring::AnswerKind::kLikelihood, kConfig, "a likelihood of ", rows, " of ", score.rows,
           " rows, this node gives those of ", least, " or more (--min-test-rows)");
  score.log_likelihood.reset();
  score.likelihood_rows = 0;
  if (scored.items) scored.items->log_likelihood.clear();
}

}  // namespace evenkeel::flower
