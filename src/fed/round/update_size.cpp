#include "fed/round/update_size.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "lora/distance.h"

namespace evenkeel::fed {
namespace {

nn::RoutingByLayer no_tokens(const models::ModelSpec& model) {
  nn::RoutingByLayer counts;
  for (const auto& layer : model.moe_layers)
    counts[layer] = {.router_logits = {}, .counts = at::zeros({model.num_experts}, at::kLong)};
  return counts;
}

/// Returns the upload that a client would make of `download` without training. \param sites  those of the download
lora::Payload begun_upload(const Server& server, const methods::ServerState& state,
                           const methods::ClientProfile& client, const lora::Payload& download,
                           const lora::Sites& sites) {
  TensorMap memory;
  const methods::ClientView view{.client = client,
                                 .sites = sites,
                                 .common = state.common,
                                 .scale = server.scale(),
                                 .gate_norm = server.config->method.gate_norm,
                                 .round = state.round,
                                 .seed = server.seed(),
                                 .memory = memory};
  return server.method->upload(download, server.method->prepare(download, view), no_tokens(server.model), view);
}

/// Calls `see` with the upload that a client would make of `download` without training: one site at a time, with the
/// extras, because a method prepares by copies; or whole for a method that has to see all sites.
template <typename See>
void for_each_begun(const Server& server, const methods::ServerState& state, const methods::ClientProfile& client,
                    const lora::Payload& download, const See& see) {
  if (!server.config->method.entry().by_site) return see(begun_upload(server, state, client, download, server.sites));
  for (const auto& site : server.sites) {
    lora::Payload part{.extras = download.extras};
    if (const auto sent = download.adapters.find(site.first); sent != download.adapters.end())
      part.adapters.insert(*sent);
    see(begun_upload(server, state, client, part, {site}));
  }
}

/// Returns the factors without storage (device meta).
lora::LoraFactors shapes_of(const lora::LoraFactors& f) {
  const auto shape = [](const at::Tensor& t) {
    return t.defined() ? at::empty(t.sizes(), t.options().device(at::kMeta)) : t;
  };
  return {shape(f.a), shape(f.b), shape(f.core), f.scaling, f.ranks};
}

/// Shortens one tensor to the length of the other along an axis.
void cut_alike(at::Tensor& one, at::Tensor& other, int64_t axis) {
  const int64_t length = std::min(one.size(axis), other.size(axis));
  one = one.narrow(axis, 0, length), other = other.narrow(axis, 0, length);
}

/// Returns the squared norm of sent - begun over the factors of one site.
double squared_update(const lora::LoraFactors& sent, const lora::LoraFactors& begun) {
  double squares = 0;
  for (const auto& factor : lora::kFactors) {
    auto now = sent.*factor.tensor, then = begun.*factor.tensor;
    if (!now.defined() || !then.defined()) continue;
    if (factor.ranked_rows) cut_alike(now, then, -2);
    if (factor.ranked_columns) cut_alike(now, then, -1);
    squares += lora::squared_distance(now, then);
  }
  return squares;
}

/// Returns the squared norm of sent - received over the extras of floating point that are in both.
double squared_update(const TensorMap& sent, const TensorMap& received) {
  double squares = 0;
  for (const auto& [name, then] : received)
    if (const auto now = sent.find(name); now != sent.end() && then.is_floating_point())
      squares += lora::squared_distance(now->second, then);
  return squares;
}

}  // namespace

lora::Payload expected_upload(const Server& server, const methods::ServerState& state,
                              const methods::ClientProfile& client, const lora::Payload& download) {
  lora::Payload expected;
  for_each_begun(server, state, client, download, [&](lora::Payload begun) {
    for (const auto& [name, factors] : begun.adapters) expected.adapters[name] = shapes_of(factors);
    expected.extras.merge(begun.extras);
  });
  return expected;
}

double update_norm(const Server& server, const methods::ServerState& state, const methods::ClientProfile& client,
                   const lora::Payload& sent) {
  const methods::ClientUpdate update{client, sent};
  const auto download = server.method->broadcast(state, client, {.round = state.round});
  double squares = squared_update(sent.extras, download.extras);
  for_each_begun(server, state, client, download, [&](const lora::Payload& begun) {
    for (const auto& [site, factors] : begun.adapters) squares += squared_update(update.sent(site), factors);
  });
  return std::sqrt(squares);
}

double update_norm(const lora::Payload& sent, const lora::Payload& begun) {
  double squares = 0;
  for (const auto& [site, factors] : begun.adapters)
    if (const auto own = sent.adapters.find(site); own != sent.adapters.end())
      squares += squared_update(own->second, factors);
  return std::sqrt(squares);
}

double reach_of(const train::LocalTraining& training, double lr, int64_t steps, const lora::Payload& sent) {
  const double distance = lr * static_cast<double>(steps);
  if (training.optimizer.name == train::OptimizerName::kSgd)
    return distance * training.max_grad_norm / (1 - training.optimizer.momentum);
  return distance * std::sqrt(static_cast<double>(lora::values_in(sent.adapters)));
}

}  // namespace evenkeel::fed
