#include "fed/run/pg_alignment.h"

#include <algorithm>

namespace evenkeel::fed {
namespace {

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

std::vector<train::GradientAlignment> run_pg_alignment(const MeasuredRunOptions& options, AlignMode mode) {
  const auto run = open_measured_run(options);
  return pg_alignment(run.experiment, run.state, run.rows, mode);
}

}  // namespace evenkeel::fed
