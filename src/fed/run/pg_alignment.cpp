#include "fed/run/pg_alignment.h"

#include <algorithm>

#include "base/plain/files.h"
#include "base/plain/text.h"
#include "fed/config/arithmetic.h"
#include "fed/exchange/client.h"
#include "fed/run/make_experiment.h"
#include "fed/run/run_folder.h"
#include "fed/run/state_evaluation.h"

namespace evenkeel::fed {
namespace {

methods::LocalSetup setup_at(const Experiment& e, const methods::ServerState& state, double budget) {
  return Client(e.fabric.context, {}).prepare(e.server.scoring_task(state, {.budget = budget}, {}));
}

/// Returns which experts get no token at the smallest client's budget. \return layer -> [E] bool
TensorMap idle_at_smallest(const Experiment& e, const methods::ServerState& state,
                           std::span<const data::Example> rows) {
  const auto weaker = [](const auto& x, const auto& y) { return x.budget < y.budget; };
  const auto weakest = std::min_element(e.server.clients.begin(), e.server.clients.end(), weaker);
  const auto setup = setup_at(e, state, weakest->budget);
  return train::idle_experts(*e.fabric.context.model, e.fabric.context.forward(setup), rows,
                             e.server.config->train.batch_size);
}

/// Returns the adapters of `state` with the gradient of the task loss over `rows`.
lora::AdapterState with_gradients(const Experiment& e, const methods::ServerState& state,
                                  std::span<const data::Example> rows, AlignMode mode) {
  auto setup = setup_at(e, state, 1.0);
  if (mode == AlignMode::kDense) setup.router.top_k = e.server.model.num_experts;
  return train::with_loss_gradients(*e.fabric.context.model, e.fabric.context.forward(setup), rows,
                                    e.server.config->train.batch_size);
}

/// Adds the gradients and pseudo-gradients of the sites of `out.layer`.
void add_sites(const Server& server, const lora::AdapterState& pseudo_gradients, const lora::AdapterState& adapters,
               train::ExpertGradients& out) {
  for (const auto& [name, site] : server.sites) {
    if (site.experts == 0 || site.moe_layer != out.layer) continue;
    const auto sent = pseudo_gradients.find(name);
    EK_CHECK(sent != pseudo_gradients.end(), kConfig, "method ", server.config->method.name,
             " sends no pseudo-gradients: an alignment needs a run of ub-smoe with a round done and pg on");
    const auto& trained = adapters.at(name);
    for (const auto& factor : {trained.a, trained.b}) out.gradients.push_back(factor.grad().cpu());
    for (const auto& factor : {sent->second.a, sent->second.b}) out.pseudo_gradients.push_back(factor);
  }
  EK_CHECK(!out.gradients.empty(), kConfig,
           "lora.targets holds no linear of the experts: nothing has pseudo-gradients");
}

std::vector<data::Example> held_out_rows(const Experiment& e, int64_t limit) {
  std::vector<data::Example> rows;
  for (const auto& name : e.server.config->evaluate.tasks) {
    const auto from = e.server.config.rows(limit);
    const auto set = data::test_rows(data::find_task(name, from), from);
    auto tokenized = data::tokenize_rows(set.rows, e.fabric.context.tokenizer,
                                         e.server.config->data.tokenize_options(e.server.model.end_of_text));
    std::move(tokenized.examples.begin(), tokenized.examples.end(), std::back_inserter(rows));
  }
  return rows;
}

}  // namespace

std::vector<train::GradientAlignment> pg_alignment(const Experiment& e, const methods::ServerState& state,
                                                   std::span<const data::Example> rows, AlignMode mode) {
  EK_CHECK(e.server.model.num_experts > 0, kConfig, "the model is dense: pseudo-gradients are for idle experts");
  const auto idle = idle_at_smallest(e, state, rows);
  const auto adapters = with_gradients(e, state, rows, mode);
  const auto pseudo_gradients = e.server.method->pseudo_gradients(state);
  std::vector<train::ExpertGradients> layers;
  for (const auto& layer : e.server.model.moe_layers) {
    layers.push_back({.layer = layer, .idle_E = idle.at(layer), .gradients = {}});
    add_sites(e.server, pseudo_gradients, adapters, layers.back());
  }
  return train::gradient_alignment(layers, e.server.seed());
}

namespace {

/// \throws kConfig when no evaluated task is read from a folder
void set_data_folder(const std::string& folder, ExperimentConfig& config) {
  const auto& tasks = config.evaluate.tasks;
  const auto from = config.rows();
  EK_CHECK(std::any_of(tasks.begin(), tasks.end(),
                       [&](const std::string& task) {
                         return data::find_task_family(data::find_task(task, from).family).in_folder;
                       }),
           kConfig, "--data is ", shown(folder), ", which no evaluated task reads: ", join(tasks));
  config.data.path = folder;
}

}  // namespace

std::vector<train::GradientAlignment> run_pg_alignment(const fs::path& folder, int64_t limit, AlignMode mode,
                                                       const std::string& data, const std::string& device,
                                                       const std::string& base) {
  const auto config = config_with_base(folder, base).with([&](ExperimentConfig& values) {
    if (!data.empty()) set_data_folder(data, values);
    compute_on(values.model, device);
  });
  auto e = make_experiment(config, Purpose::kEvaluate);
  const auto state = state_at(e, Checkpoint(folder / "checkpoint").read());
  return pg_alignment(e, state, held_out_rows(e, limit), mode);
}

}  // namespace evenkeel::fed
