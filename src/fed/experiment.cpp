#include "fed/experiment.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/device.h"
#include "base/files.h"
#include "base/fingerprint.h"
#include "fed/foresight.h"
#include "fed/manifest.h"

namespace evenkeel {
namespace {

void check_method_fits(const MethodSection& method, const ModelSpec& model) {
  EK_CHECK(!method.entry().needs_experts || model.num_experts > 0, kConfig, "method.name is ", method.name,
           ", which balances experts; the model (", model.family, ") has none");
}

void check_ranks(const ExperimentConfig& config) {
  const auto ranks = config.client_ranks();
  const bool equal = std::all_of(ranks.begin(), ranks.end(), [&](int64_t rank) { return rank == ranks[0]; });
  EK_CHECK(equal || config.method.entry().takes_unequal_ranks(), kConfig, "clients.ranks differ (",
           join(config.clients.ranks.numbers()), "), but method ", config.method.name, " needs equal ranks");
}

std::vector<size_t> sizes_of(const Shards& shards) {
  std::vector<size_t> sizes;
  for (const auto& shard : shards.examples) sizes.push_back(shard.size());
  return sizes;
}

}  // namespace

Server make_server(const ExperimentConfig& config, const CausalLm& shape) {
  return {.config = config,
          .model_folder = resolve_model_path(config.model.path),
          .model = shape.spec(),
          .sites = config.lora.sites(shape),
          .method = config.method.make(),
          .clients = {},
          .tasks = config.evaluate.tasks};
}

Experiment make_experiment(ExperimentConfig config, Purpose purpose,
                           const std::function<void(const Experiment& e)>& check) {
  at::set_num_threads(static_cast<int>(config.threads));
  const bool computes = purpose == Purpose::kTrain || purpose == Purpose::kEvaluate;
  const auto device = computes ? find_device(config.model.device, "model.device") : c10::Device(c10::kCPU);
  settle_device(device);
  const auto folder = resolve_model_path(config.model.path);
  auto shape = load_shape(folder, config.model.storage(config.output.dir));
  auto tokenizer = Tokenizer::of_model(folder);
  tokenizer.check_fits(shape->spec().vocab_size, folder);
  if (!config.data.chat_template.empty()) tokenizer.use_chat_template(config.data.chat_template);
  if (!config.data.date.empty()) tokenizer.use_date(jinja::Date::read(config.data.date, "data.date"));
  check_method_fits(config.method, shape->spec());
  check_ranks(config);
  auto server = make_server(config, *shape);
  auto sites = server.sites;
  for (double budget : config.evaluate.budgets) active_experts(server.model, budget, "evaluate.budgets");
  Experiment e{std::move(server), LocalFabric({.config = config,
                                               .model = std::move(shape),
                                               .tokenizer = std::move(tokenizer),
                                               .sites = std::move(sites),
                                               .method = config.method.make(),
                                               .bert_scorer = {}})};
  if (purpose == Purpose::kTrain || purpose == Purpose::kForesee)
    e.fabric.shards = make_shards(config, e.fabric.place.tokenizer, e.server.model);
  e.server.clients = make_clients(config, e.server.model, sizes_of(e.fabric.shards));
  e.fabric.clients = e.server.clients;
  if (purpose == Purpose::kForesee || purpose == Purpose::kServe) return e;
  const auto& bert = config.evaluate.bert_score;
  if (!bert.encoder.empty()) e.fabric.place.bert_scorer = BertScorer::load(bert.encoder, bert);
  if (check) check(e);
  if (purpose == Purpose::kTrain) {
    require_memory(memory_plan(e), machine::memory(), "the run");
    require_device_memory(e, device);
  }
  if (purpose == Purpose::kTrain)  // in the order of the disk, on all threads: loading then finds the pages in memory
    for (const auto& file : model_files(folder)) fingerprint_of(file);
  auto storage = config.model.storage(config.output.dir);
  storage.device = device;
  e.fabric.place.model = load_model(folder, storage);
  return e;
}

}  // namespace evenkeel
