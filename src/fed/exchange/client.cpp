#include "fed/exchange/client.h"

#include "base/plain/files.h"
#include "base/plain/mapped_files.h"
#include "fed/exchange/gradient_sums.h"
#include "fed/exchange/unexportable_routing.h"

namespace evenkeel {
namespace {

/// Tells a score of one state from all others of the run.
std::string key_of(const Task& task, const Score& ask) {
  const auto& client = task.client;
  return concat(version(), ", round ", task.round, ", ", ask.task, ", ", client.top_k, " experts, rank ", client.rank,
                ", budget ", client.budget, ", reading ", ask.reading, ", served by ", config::name_of(ask.served_by),
                ask.own_rows ? concat(", rows of client ", client.id) : "", ask.rows.empty() ? "" : ": ",
                join(ask.rows));
}

/// The rows of `set` at those places.
std::vector<Row> rows_at(const std::vector<int64_t>& places, std::vector<Row> rows) {
  std::vector<Row> chosen;
  for (const int64_t place : places) {
    EK_CHECK(place >= 0 && place < static_cast<int64_t>(rows.size()), kData, "asked to score test row ", place, " of ",
             rows.size(), ": the rows have changed since this client joined");
    chosen.push_back(rows[static_cast<size_t>(place)]);
  }
  return chosen;
}

/// The test rows that the task is about.
TaskRows scored_rows(const ExperimentConfig& config, const Task& task, const Score& ask) {
  const int64_t limit = ask.rows.empty() ? config.evaluate.limit : 0;
  const auto from = config.rows_to_score(ask.own_rows ? std::optional(task.client.id) : std::nullopt, limit);
  auto set = test_rows(find_task(ask.task, from), from);
  if (!ask.rows.empty()) set.rows = rows_at(ask.rows, std::move(set.rows));
  return set;
}

std::map<std::string, int64_t> right_answers(const Score& ask, const TaskInfo& task, std::span<const Row> rows) {
  std::map<std::string, int64_t> counts;
  if (ask.own_rows && task.scoring == Scoring::kChoice)
    for (const auto& row : rows) ++counts[row.answer];
  return counts;
}

}  // namespace

Reply Client::answer(const Task& task, const OnProgress& on_progress) {
  return std::visit([&](const auto& ask) { return answer(task, ask, on_progress); }, task.ask);
}

LocalSetup Client::prepare(const Task& task) {
  const auto sent = download(task);
  return place_.placed(place_.method->prepare(sent, view(task)));
}

LocalSetup Client::exported(const Task& task, ServedBy by) {
  auto setup = empty_setup(view(task));
  setup.router.gate_norm = served_gates(setup.router.gate_norm, by, place_.model->spec().gates);
  setup.adapters = received(decode(task.payload.bytes, "the adapter to be scored as exported")).adapters;
  return place_.placed(std::move(setup));
}

Reply Client::answer(const Task& task, const Train& ask, const OnProgress& on_progress) {
  const Payload sent = download(task);
  const auto own = view(task);
  const auto on_step = [&](int64_t done, int64_t, int64_t tokens) {
    if (on_progress) on_progress({.client = task.client.id, .steps = done, .tokens = tokens});
  };
  auto training = place_.training();
  training.optimizer.lr = ask.lr.value_or(training.optimizer.lr);
  auto result = train_locally(*place_.model, *place_.method, sent, own, rows_, training, on_step);
  check_mapped_files();
  return {.client = task.client.id,
          .late = DeferredPayload(std::move(result.upload), place_.config.train.transport_dtype, place_.sites),
          .report = static_cast<const LocalReport&>(result),
          .memory = memory_};
}

/// As many rows from each client.
Reply Client::answer(const Task& task, const SumGradients& ask, const OnProgress&) {
  std::vector<OwnedRow> rows;
  for (const auto& row : rows_) rows.push_back({&row, task.client.top_k});
  const int64_t clients = place_.config.clients.count;
  return sum_gradients(place_, task, rows, (ask.sample.rows + clients - 1) / clients,
                       {place_.seed(), "gradient-rows-client", static_cast<uint64_t>(task.client.id)});
}

Reply Client::answer(const Task& task, const Score& ask, const OnProgress& on_progress) {
  const bool as_exported = ask.served_by != ServedBy::kRun;
  const auto setup = as_exported ? exported(task, ask.served_by) : prepare(task);
  const auto& config = place_.config;
  const auto info = find_task(ask.task, config.data.rows());
  const auto set = scored_rows(config, task, ask);
  auto forward = place_.forward(setup);
  if (as_exported) forward.base_change = nullptr;  // the adapter has it
  const auto on_rows = [&](int64_t done, int64_t rows) {
    if (on_progress)
      on_progress(
          {.client = task.client.id, .task = ask.task, .budget = task.client.budget, .rows_done = done, .rows = rows});
  };
  auto options = place_.evaluation();
  options.journal_key = concat(place_.answers_of, key_of(task, ask));
  Scored scored;
  scored.score = evaluate_task(*place_.model, place_.tokenizer, forward, info, set, options,
                               ask.predictions ? &scored.predictions : nullptr, on_rows,
                               config.evaluate.items ? &scored.items.emplace() : nullptr);
  scored.right_answers = right_answers(ask, info, set.rows);
  scored.score.budget = task.client.budget;
  scored.score.reading = ask.reading;
  scored.score.served_by = ask.served_by;
  scored.score.top_k = setup.router.top_k;
  return {.client = task.client.id, .report = std::move(scored)};
}

Payload Client::download(const Task& task) const {
  auto payload = received(decode(task.payload.bytes, concat("the task of client ", task.client.id)));
  place_.shared->receive_change(task.round, payload.base_delta);
  return payload;
}

ClientView Client::view(const Task& task) {
  return {.client = task.client,
          .sites = place_.sites,
          .common = place_.shared->common(),
          .scale = place_.config.lora,
          .gate_norm = place_.config.method.gate_norm,
          .round = task.round,
          .seed = place_.seed(),
          .memory = memory_};
}

}  // namespace evenkeel
