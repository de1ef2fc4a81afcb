#include "fed/run/make_experiment.h"
#include "fed/exchange/simulated_privacy.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/format/fingerprint.h"
#include "base/plain/files.h"
#include "base/system/device.h"
#include "base/system/process.h"
#include "base/system/threads.h"
#include "fed/run/memory_estimate.h"
#include "fed/store/manifest.h"
#include "nn/cuda_kernels/kernels.h"
#include "nn/moe/scored_routing.h"

namespace evenkeel::fed {
namespace {

void check_method_fits(const MethodSection& method, const models::ModelSpec& model) {
  EK_CHECK(!method.entry().needs_experts || model.num_experts > 0, kConfig, "method.name is ", method.name,
           ", which balances experts; the model (", model.family, ") has none");
  nn::check_gate_norm(model.gates.score, method.gate_norm, "method.gate_norm");
}

void check_ranks(const RunConfig& config) {
  const auto& plans = config.plans();
  const bool equal =
      std::all_of(plans.begin(), plans.end(), [&](const ClientPlan& plan) { return plan.rank == plans[0].rank; });
  EK_CHECK(equal || config->method.entry().takes_unequal_ranks(), kConfig, "clients.ranks differ (",
           join(config->clients.ranks.numbers()), "), but method ", config->method.name, " needs equal ranks");
}

std::vector<size_t> sizes_of(const Shards& shards) {
  std::vector<size_t> sizes;
  for (const auto& shard : shards.examples) sizes.push_back(shard.size());
  return sizes;
}

c10::Device machine_of(const RunConfig& config) { return find_device(config->model.device, "model.device"); }

tokenizer::Tokenizer tokenizer_of(const fs::path& folder, const models::CausalLm& shape, const DataSection& data) {
  auto tokenizer = tokenizer::Tokenizer::of_model(folder);
  tokenizer.check_fits(shape.spec().vocab_size, folder);
  if (!data.chat_template.empty()) tokenizer.use_chat_template(data.chat_template);
  if (!data.date.empty()) tokenizer.use_date(jinja::Date::read(data.date, "data.date"));
  return tokenizer;
}

void check_model(const Server& server) {
  check_method_fits(server.config->method, server.model);
  check_ranks(server.config);
  for (const double budget : server.config->evaluate.budgets) active_experts(server.model, budget, "evaluate.budgets");
}

std::shared_ptr<ExamplePrivacy> simulated_privacy(const RunConfig& config) {
  if (config->privacy.unit != PrivacyUnit::kExample) return nullptr;
  return std::make_shared<SimulatedPrivacy>(config);
}

/// Makes what needs neither rows nor weights nor clients.
Experiment outlined(const RunConfig& config) {
  const auto folder = models::find_model_folder(config->model.path);
  auto shape = models::load_shape(folder, config->model.storage(config->output.dir));
  auto tokenizer = tokenizer_of(folder, *shape, config->data);
  auto server = make_server(config, *shape);
  check_model(server);
  auto sites = server.sites;
  auto method = config->method.make();
  return {std::move(server), LocalFabric({.config = config,
                                          .model = std::move(shape),
                                          .tokenizer = std::move(tokenizer),
                                          .sites = std::move(sites),
                                          .method = std::move(method),
                                          .bert_scorer = {},
                                          .privacy = simulated_privacy(config)})};
}

/// Makes the clients. \param rows  their training rows; may be empty
void take_clients(Experiment& e, Shards rows) {
  e.fabric.shards = std::move(rows);
  e.server.clients = make_clients(e.server.config, e.server.model, sizes_of(e.fabric.shards));
  e.fabric.clients = e.server.clients;
}

void load_encoder(Experiment& e) {
  const auto& config = e.fabric.context.config;
  const auto& bert = config->evaluate.bert_score;
  if (bert.encoder.empty()) return;
  models::BaseStorage storage;
  storage.engine = config->model.compute().engine;
  storage.device = machine_of(config);
  e.fabric.context.bert_scorer = scoring::BertScorer::load(bert.encoder, bert, storage);
}

/// Checks that memory suffices and fingerprints the model's files. The latter reads them in the order of the disk with
/// all threads, so that loading finds them in the page cache.
void make_ready_to_train(const Experiment& e) {
  models::require_memory(memory_plan(e), machine::memory(), "the run");
  require_device_memory(e, machine_of(e.server.config));
  for (const auto& file : model_files(e.server.model_folder)) fingerprint_of(file);
}

}  // namespace

Server make_server(const RunConfig& config, const models::CausalLm& shape) {
  return {.config = config,
          .model_folder = models::find_model_folder(config->model.path),
          .model = shape.spec(),
          .sites = config->lora.sites(shape),
          .all_sites = shape.all_sites(),
          .method = config->method.make(),
          .clients = {},
          .tasks = config->evaluate.tasks};
}

Experiment make_experiment(const RunConfig& config, Purpose purpose,
                           const std::function<void(const Experiment& e)>& check) {
  use_pool_threads(config->threads);
  const bool trains = purpose == Purpose::kTrain;
  const bool computes = purpose != Purpose::kDryRun && purpose != Purpose::kServe;
  settle_device(computes ? machine_of(config) : c10::Device(c10::kCPU));
  if (computes)
    nn::cuda::use_kernels(machine_of(config),
                          nn::cuda::KernelSet::read(config->model.cuda_kernels, "model.cuda_kernels"));
  auto e = outlined(config);
  const bool has_rows = trains || purpose == Purpose::kDryRun;
  take_clients(e, has_rows ? make_shards(e.server.config, e.fabric.context.tokenizer, e.server.model) : Shards());
  if (trains) give_back_freed_memory();  // the text of the rows
  if (computes) load_encoder(e);
  if (check) check(e);
  if (trains) make_ready_to_train(e);
  if (computes && purpose != Purpose::kPrepare) load_weights(e);
  return e;
}

Experiment make_experiment_of_rows(const RunConfig& config, Shards rows) {
  use_pool_threads(config->threads);
  settle_device(c10::Device(c10::kCPU));
  auto e = outlined(config);
  take_clients(e, std::move(rows));
  return e;
}

void load_weights(Experiment& e) {
  const auto& config = e.fabric.context.config;
  auto storage = config->model.storage(config->output.dir);
  storage.device = machine_of(config);
  e.fabric.context.model = models::load_model(e.server.model_folder, storage);
}

}  // namespace evenkeel::fed
