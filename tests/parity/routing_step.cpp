/// Runs UB-SMoE's routing on given scores, or inside the forward pass of a model in float64, for comparison with the
/// numpy reference of tests/parity/reference.
/// It is a server of jobs (jobs.h).
/// JOB: {"options": TOML of [method.ub-smoe], "gate_norm", "top_k", "phi": file of `<layer>.phi` [E], "upstream": file,
/// "out": file, and one of
///         "scores": file of `scores` [T, E]; upstream `weights` [T, E] is d / d gate weights
///         "model": folder, "ids": [..]; upstream `logits` [T, V] is d / d logits}
/// OUT: of scores: experts and weights [T, K], scores_grad [T, E], phi_grad [E]; of a model: logits [T, V], and by
/// layer counts/<layer> [E] and phi_grad/<layer> [E].
#include <ATen/ATen.h>

#include "base/plain/json.h"
#include "jobs.h"
#include "methods/method_registry.h"
#include "models/causal_lm.h"

namespace evenkeel {
namespace {

TensorMap tensors(const Json& job, const char* key) { return load_safetensors(job.at(key).get<std::string>()).tensors; }

/// Returns the router options of a client with `top_k`, with phi as a leaf of the graph.
nn::RouterOptions router_of(const Json& job) {
  const auto method =
      methods::find_method("ub-smoe").make(config::Table::parse(job.at("options").get<std::string>(), "options"));
  const methods::ClientProfile client{.top_k = job.at("top_k"), .rank = 1};
  const lora::Sites no_sites;
  const methods::Common nothing;
  TensorMap memory;
  const auto renorm = job.at("gate_norm") == config::name_of(nn::GateNorm::kRenormSelected);
  const methods::ClientView view{.client = client,
                                 .sites = no_sites,
                                 .common = nothing,
                                 .scale = {},
                                 .gate_norm = renorm ? nn::GateNorm::kRenormSelected : nn::GateNorm::kCheckpoint,
                                 .memory = memory};
  auto router = method->prepare({.extras = tensors(job, "phi")}, view).router;
  for (auto& [layer, phi_E] : router.modulation) phi_E.requires_grad_(true);
  return router;
}

TensorMap route_scores(const Json& job) {
  auto router = router_of(job);
  auto scores_TE = tensors(job, "scores").at("scores").requires_grad_(true);
  const auto phi_E = router.modulation.empty() ? at::Tensor() : router.modulation.begin()->second;
  const auto routing = nn::route(scores_TE, router, phi_E, false);
  const auto upstream_TE = tensors(job, "upstream").at("weights");
  (routing.weights * upstream_TE.gather(1, routing.experts)).sum().backward();
  TensorMap out{{"experts", routing.experts}, {"weights", routing.weights.detach()}, {"scores_grad", scores_TE.grad()}};
  if (phi_E.defined() && phi_E.grad().defined()) out["phi_grad"] = phi_E.grad();
  return out;
}

TensorMap forward(const Json& job) {
  const auto model = models::load_model(job.at("model").get<std::string>(), models::BaseDtype::kFloat64);
  const auto router = router_of(job);
  const std::vector<std::vector<int64_t>> ids{job.at("ids").get<std::vector<int64_t>>()};
  nn::RoutingByLayer routing;
  const auto hidden_TD = model->hidden(data::pack_ids(ids), {.router = router, .routing = {&routing, 1}});
  const auto logits_TV = at::matmul(hidden_TD, model->head().values_OI.t());
  const auto loss = (logits_TV * tensors(job, "upstream").at("logits")).sum();
  if (loss.requires_grad()) loss.backward();  // the base is frozen, so without phi there is nothing to differentiate
  TensorMap out{{"logits", logits_TV.detach()}};
  for (const auto& [layer, stats] : routing) out["counts/" + layer] = stats.counts;
  for (const auto& [layer, phi_E] : router.modulation)
    if (phi_E.grad().defined()) out["phi_grad/" + layer] = phi_E.grad();
  return out;
}

void run(const fs::path& file) {
  const Json job = load_json(file);
  save_safetensors(job.at("out").get<std::string>(), job.contains("model") ? forward(job) : route_scores(job));
}

}  // namespace
}  // namespace evenkeel

int main() { return evenkeel::serve_jobs(evenkeel::run); }
