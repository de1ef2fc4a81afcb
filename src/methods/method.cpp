#include "methods/method.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/plain/error.h"
#include "lora/algebra.h"
#include "methods/initial_state.h"

namespace evenkeel::methods {
namespace {

lora::LoraFactors detach(const lora::LoraFactors& factors) {
  return {factors.a.detach(), factors.b.detach(), factors.core.defined() ? factors.core.detach() : at::Tensor{},
          factors.scaling};
}

/// Returns whether the rank is too low for a replacement by the product (lora/algebra.h).
bool is_stack(const lora::LoraFactors& factors) {
  return factors.rank() < std::min(factors.a.size(-1), factors.b.size(-2));
}

}  // namespace

lora::AdapterState whole_adapter(const ServerState& state) {
  return lora::joined(state.common.base_change, lora::completed(state.global.adapters, state.common.fixed));
}

void add_base_delta(ServerState& next, lora::TransportDtype dtype) {
  for (const auto& [site, delta] : next.global.base_delta)
    EK_CHECK(delta.a.defined() && delta.b.defined(), kShape, "the change of the base at ", site, " lacks A or B");
  std::erase_if(next.global.base_delta, [](const auto& entry) { return entry.second.rank() == 0; });
  for (auto& [site, delta] : next.global.base_delta) {
    delta = lora::rounded_for_transport(delta, dtype);
    auto& base_change = next.common.base_change;
    const bool first = !base_change.contains(site) && !delta.core.defined();
    if (first && is_stack(delta) && delta.scaling == 1) {
      delta.a = delta.a.contiguous();  // decompositions may return transposed strides
      delta.b = delta.b.contiguous();
      base_change[site] = {.a = delta.a, .b = delta.b};
      continue;
    }
    lora::add_to_base(base_change, {{site, delta}});
    const auto& all = base_change.at(site);
    if (!is_stack(all) || delta.scaling != 1) continue;
    // `delta` becomes a view of the last ranks of the stack, so its numbers are stored once.
    delta.a = all.a.narrow(-2, all.rank() - delta.rank(), delta.rank());
    delta.b = all.b.narrow(-1, all.rank() - delta.rank(), delta.rank());
  }
}

void Metrics::add_sum(const std::string& name, const at::Tensor& sum, const at::Tensor& weight) {
  pending_.push_back({name, sum.detach(), weight.defined() ? weight.detach() : weight});
}

void Metrics::begin_read(std::span<const at::Tensor> others) {
  EK_CHECK(!reading_.values, kInternal, "metrics are read twice at once");
  std::vector<at::Tensor> scalars;
  const auto ask = [&](const at::Tensor& scalar) {
    scalars.push_back(scalar.detach().to(at::kDouble).reshape(at::IntArrayRef{}));
  };
  for (const auto& other : others) ask(other);
  for (const auto& [name, sum, weight] : pending_)
    for (const auto* part : {&sum, &weight})
      if (part->defined()) ask(*part);
  if (scalars.empty()) return;
  reading_ = {std::exchange(pending_, {}), others.size(), Download({at::stack(scalars)})};
}

std::vector<double> Metrics::end_read() {
  auto [pending, others, values] = std::exchange(reading_, {});
  if (!values) return {};
  const auto* next = values->wait().front().const_data_ptr<double>();
  const std::vector<double> result(next, next + others);
  next += others;
  for (const auto& [name, sum, weight] : pending) {
    auto& [known_sum, known_weight] = means_[name];
    known_sum += *next++;
    known_weight += weight.defined() ? *next++ : 1.0;
  }
  return result;
}

std::map<std::string, double> Metrics::means() const {
  std::map<std::string, double> result;
  for (const auto& [name, mean] : means_)
    if (mean.second > 0) result[name] = mean.first / mean.second;
  return result;
}

LocalSetup empty_setup(const ClientView& view) {
  LocalSetup setup;
  setup.router = {.top_k = view.client.top_k, .gate_norm = view.gate_norm, .records_logits = false};
  return setup;
}

void check_routing_counts(const lora::Payload& upload, const ClientProfile& client) {
  constexpr std::string_view kCounts = ".counts";
  for (const auto& [name, counts_E] : upload.extras) {
    if (!name.ends_with(kCounts)) continue;
    const auto layer = name.substr(0, name.size() - kCounts.size());
    const auto chosen = counts_E.sum().item<int64_t>();
    const auto tokens = upload.extras.at(layer + ".tokens").sum().item<int64_t>();
    EK_CHECK(tokens >= 1, kData, "the experts of ", layer, " were chosen by ", tokens, " tokens, allowed: 1 or more");
    EK_CHECK(chosen == tokens * client.top_k, kData, "the experts of ", layer, " were chosen ", chosen, " times by ",
             tokens, " tokens of ", client.top_k, " choices each");
  }
}

void check_countable(const nn::RoutingByLayer& counts, const ClientProfile& client) {
  for (const auto& [layer, stats] : counts)
    EK_CHECK(stats.tokens <= std::numeric_limits<int32_t>::max(), kData, "client ", client.id, " routed ", stats.tokens,
             " tokens in a round, allowed: below 2^31");
}

LocalSetup FederatedMethod::prepare(const lora::Payload& download, const ClientView& view) const {
  auto setup = empty_setup(view);
  setup.adapters = lora::completed(lora::clone(download.adapters), view.common.fixed);
  return setup;
}

at::Tensor FederatedMethod::extra_loss(const StepView&) const { return {}; }
at::Tensor FederatedMethod::penalty(const StepView&) const { return {}; }
void FederatedMethod::edit_gradients(const StepView&) const {}
void FederatedMethod::edit_parameters(const StepView&) const {}

lora::Payload FederatedMethod::upload(const lora::Payload&, const LocalSetup& setup, const nn::RoutingByLayer&,
                                      const ClientView&) const {
  lora::Payload payload;
  for (const auto& [site, factors] : setup.adapters) payload.adapters[site] = detach(factors);
  return payload;
}

void FederatedMethod::check_upload(const lora::Payload&, const ClientProfile&) const {}

ServerState FederatedMethod::initialize(const ServerView& server) const {
  ServerState state;
  state.global.adapters = first_adapters(server);
  return state;
}

int64_t FederatedMethod::rank_of(const ServerState&, const ClientProfile& client) const { return client.rank; }

lora::Payload FederatedMethod::broadcast(const ServerState& state, const ClientProfile&, const RoundView&) const {
  return {.adapters = state.global.adapters, .base_delta = state.global.base_delta};
}

ServerState FederatedMethod::aggregate(const ServerView&, const ServerState& state, const RoundView& round,
                                       const Uploads& uploads) const {
  EK_CHECK((uploads.size() > 0 || uploads.hidden()) && uploads.size() == round.weights.size(), kInternal,
           "aggregate: ", uploads.size(), " updates for ", round.weights.size(), " weights");
  ServerState next = state;
  next.global.base_delta.clear();  // of the last round
  for (auto& [site, factors] : next.global.adapters) {
    for (const auto& factor : lora::kFactors)
      if (auto& tensor = factors.*factor.tensor; tensor.defined())
        tensor = uploads.mean(site, factor.tensor, round.weights);
  }
  return next;
}

void FederatedMethod::check_sums() const {}
void FederatedMethod::check_client_privacy() const {}
TensorMap FederatedMethod::summands(const ClientUpdate&, double) const { return {}; }
at::Tensor FederatedMethod::expert_weights(const std::string&, const ClientUpdate&, double) const { return {}; }

TensorMap FederatedMethod::diagnostics(const ServerState&) const { return {}; }

lora::AdapterState FederatedMethod::pseudo_gradients(const ServerState&) const { return {}; }

}  // namespace evenkeel::methods
