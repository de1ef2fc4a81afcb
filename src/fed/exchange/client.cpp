#include "fed/exchange/client.h"

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/mapped_files.h"
#include "fed/exchange/gradient_sums.h"
#include "fed/exchange/simulated_masks.h"
#include "fed/exchange/summed_upload.h"
#include "fed/exchange/unexportable_routing.h"
#include "methods/described_method.h"

namespace evenkeel::fed {
namespace {

TestRowsKey rows_to_score(const RunConfig& config, const Task& task, const Score& ask) {
  TestRowsKey key{.task = ask.task, .limit = config->evaluate.limit};
  if (ask.own_rows)
    key.own_of = task.client.id;
  else
    key.left_out = config.left_out_after(task.round);
  return key;
}

/// Returns a key that identifies a score among all scores of the run. Limit, clients left out and the method's source
/// are parts of it, because a resumed run may change them.
std::string key_of(const RunConfig& config, const Task& task, const Score& ask, const TestRowsKey& rows) {
  const auto& client = task.client;
  const auto& method = config->method.entry().described;
  return concat(version(), ", round ", task.round, ", ", ask.task, ", ", client.top_k, " experts, rank ", client.rank,
                ", budget ", client.budget, ", mode ", ask.rank_eval_mode, ", served by ",
                config::name_of(ask.served_by), rows.own_of ? concat(", rows of client ", *rows.own_of) : "",
                ", limit ", rows.limit, rows.left_out.empty() ? "" : concat(", without clients ", join(rows.left_out)),
                method ? concat(", method ", method->sha256) : "");
}

/// Returns what a report has that is no measure of the client's rows: its steps where the client itself is protected.
/// Of a client of a simulated machine also its tokens, from which the machine's time is computed.
train::LocalReport open_part(const train::LocalReport& report, const RunConfig& config, int64_t client) {
  train::LocalReport open;
  open.steps = report.steps;
  open.privacy = report.privacy;
  if (open.privacy) open.privacy->signal.reset();
  if (config->privacy.protects_clients()) return open;
  if (!config.plan(client).machine.empty()) open.tokens = report.tokens;
  open.seconds = report.seconds;
  open.step_seconds = report.step_seconds;
  open.move_seconds = report.move_seconds;
  return open;
}

}  // namespace

Reply Client::answer(const Task& task, const OnProgress& on_progress) {
  return std::visit([&](const auto& ask) { return answer(task, ask, on_progress); }, task.ask);
}

methods::LocalSetup Client::prepare(const Task& task) {
  const auto sent = download(task);
  return context_.on_device(context_.method->prepare(sent, view(task)));
}

methods::LocalSetup Client::exported(const Task& task, scoring::ServedBy by) {
  auto setup = methods::empty_setup(view(task));
  setup.router.gate_norm = served_gates(setup.router.gate_norm, by, context_.model->spec().gates);
  setup.adapters = lora::received(lora::decode(task.payload.bytes, "the adapter to be scored as exported")).adapters;
  return context_.on_device(std::move(setup));
}

train::LocalResult Client::trained(const Task& task, const Train& ask, const lora::Payload& sent,
                                   const OnProgress& on_progress) {
  const auto own = view(task);
  const auto on_step = [&](int64_t done, int64_t, int64_t tokens) {
    if (on_progress) on_progress({.client = task.client.id, .steps = done, .tokens = tokens});
  };
  auto training = context_.training();
  training.optimizer.lr = ask.lr.value_or(training.optimizer.lr);
  if (context_.privacy) training.privacy = private_steps(task, training);
  auto result = train::train_locally(*context_.model, *context_.method, {sent, own, rows_}, training, on_step);
  check_mapped_files();
  return result;
}

train::LocalResult Client::train_once(const Task& task, const Train& ask, const lora::Payload& sent,
                                      const OnProgress& on_progress) {
  if (!context_.masks) return trained(task, ask, sent, on_progress);
  auto known = context_.masks->kept(task);
  if (!known) {
    auto result = trained(task, ask, sent, on_progress);
    known = std::make_shared<const TrainedRound>(TrainedRound{std::move(result), memory_});
    context_.masks->keep(task, known);
  }
  memory_ = known->memory;
  return known->result;
}

Reply Client::answer(const Task& task, const Train& ask, const OnProgress& on_progress) {
  const auto mode = context_.config->secure_aggregation.mode;
  EK_CHECK(ask.summed.has_value() == (mode != SecureMode::kOff), kData, "a task that asks for ",
           ask.summed ? "a summand" : "a single upload", ", secure_aggregation.mode is ", config::name_of(mode));
  const lora::Payload sent = download(task);
  auto result = train_once(task, ask, sent, on_progress);
  if (ask.summed)
    return {.client = task.client.id,
            .upload = lora::DeferredPayload(summed(task, *ask.summed, sent, result), lora::TransportDtype::kAsTheyAre,
                                            context_.sites),
            .report = open_part(result, context_.config, task.client.id),
            .memory = memory_};
  return {
      .client = task.client.id,
      .upload = lora::DeferredPayload(std::move(result.upload), context_.config->train.transport_dtype, context_.sites),
      .report = static_cast<const train::LocalReport&>(result),
      .memory = memory_};
}

std::shared_ptr<const train::PrivateSteps> Client::private_steps(const Task& task,
                                                                 const train::LocalTraining& training) {
  const auto rows = static_cast<int64_t>(rows_.size());
  EK_CHECK(rows > 0, kData, "client ", task.client.id, " has no rows to train on");
  return std::make_shared<const train::PrivateSteps>(
      context_.privacy->begin(task, {.rows = rows, .steps = train::local_steps(training, rows), .memory = memory_}));
}

lora::Payload Client::summed(const Task& task, const SummedTerms& terms, const lora::Payload& received,
                             const train::LocalResult& trained) const {
  const methods::ClientUpdate own{task.client, trained.upload, trained.steps};
  const auto summand = this->summand(task, terms, {own, received.adapters, trained});
  const auto& masks = context_.masks;
  if (masks)
    masks->add(task, summand);
  else if (context_.config->secure_aggregation.mode == SecureMode::kMasks)
    SimulatedMasks(context_.seed(), task.round, terms.roster).add(task.client.id, summand);
  return {.extras = {{kSummedValues, summand.values}, {kSummedCounts, summand.counts}}};
}

secure::RingVector Client::summand(const Task& task, const SummedTerms& terms, const TrainedPart& trained) const {
  const auto& spec = context_.model->spec();
  const auto& config = *context_.config;
  const SummedRun run{.method = *context_.method,
                      .entry = config.method.entry(),
                      .sites = context_.sites,
                      .moe_layers = spec.moe_layers,
                      .experts = spec.num_experts,
                      .reports = config.secure_aggregation.reports,
                      .adds_noise = terms.noise.has_value()};
  EK_CHECK(run.adds_noise == config.privacy.protects_clients(), kData, "a task that asks for a summand ",
           run.adds_noise ? "with" : "without", " noise, privacy.unit is ", config::name_of(config.privacy.unit));
  if (run.adds_noise) {
    SimulatedNoise simulated(context_.seed());
    return noisy_summand(summed_layout(run, trained.upload), trained, {task, terms, config.privacy, config.name},
                         context_.noise ? *context_.noise : simulated);
  }
  const auto& masks = context_.masks;
  const auto rounding = masks ? masks->rounding_key(task) : rounding_key(context_.seed(), task.round, task.client.id);
  return summand_of(run, trained, terms, rounding);
}

/// Sums gradients over this client's share of the sample. All clients draw the same number of rows.
Reply Client::answer(const Task& task, const SumGradients& ask, const OnProgress&) {
  EK_CHECK(!context_.privacy, kConfig, "client ", task.client.id,
           " trains with privacy of single rows and gives no sums of gradients");
  std::vector<OwnedRow> rows;
  for (const auto& row : rows_) rows.push_back({&row, task.client.top_k});
  return sum_gradients(context_, task, rows, ask.sample.of_one(context_.config->clients.count),
                       {context_.seed(), "gradient-rows-client", static_cast<uint64_t>(task.client.id)});
}

Reply Client::answer(const Task& task, const Score& ask, const OnProgress& on_progress) {
  const bool as_exported = ask.served_by != scoring::ServedBy::kRun;
  const auto setup = as_exported ? exported(task, ask.served_by) : prepare(task);
  const auto which = rows_to_score(context_.config, task, ask);
  const auto rows = context_.test_rows(which);
  const auto graphs = context_.graphs();
  auto forward = context_.forward(setup);
  forward.graphs = graphs ? &graphs->passes() : nullptr;
  if (as_exported) forward.base_change = nullptr;  // the adapter has it
  const auto on_rows = [&](int64_t done, int64_t all) {
    if (on_progress)
      on_progress(
          {.client = task.client.id, .task = ask.task, .budget = task.client.budget, .rows_done = done, .rows = all});
  };
  auto options = context_.evaluation();
  options.journal_key = concat(context_.answers_of, key_of(context_.config, task, ask, which));
  Scored scored;
  scoring::RowOutputs outputs;
  if (ask.predictions) outputs.predictions = &scored.predictions;
  if (context_.config->evaluate.items) outputs.items = &scored.items.emplace();
  scored.score =
      scoring::evaluate_task({*context_.model, context_.tokenizer, forward}, *rows, options, outputs, on_rows);
  scored.score.budget = task.client.budget;
  scored.score.rank_eval_mode = ask.rank_eval_mode;
  scored.score.served_by = ask.served_by;
  scored.score.top_k = setup.router.top_k;
  return {.client = task.client.id, .report = std::move(scored)};
}

lora::Payload Client::download(const Task& task) const {
  auto payload = lora::received(lora::decode(task.payload.bytes, concat("the task of client ", task.client.id)));
  context_.shared->receive_change(task.round, payload.base_delta);
  return payload;
}

methods::ClientView Client::view(const Task& task) {
  return {.client = task.client,
          .sites = context_.sites,
          .common = context_.shared->common(),
          .scale = context_.config->lora,
          .gate_norm = context_.config->method.gate_norm,
          .round = task.round,
          .seed = context_.seed(),
          .memory = memory_};
}

}  // namespace evenkeel::fed
