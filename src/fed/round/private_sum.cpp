// Server's part of a round that protects its clients ([privacy] unit = "client"): the sum of the clipped changes.
#include <ATen/ATen.h>

#include <algorithm>

#include "fed/round/client_privacy.h"
#include "fed/round/round_sum.h"

namespace evenkeel::fed {
namespace {

constexpr const char* kClip = "privacy.clip";  // in the server's memory: the bound of the next round, if it adapts

double clip_of(const Server& server, const methods::ServerState& state) {
  const auto known = state.memory.find(kClip);
  return known == state.memory.end() ? server.config->privacy.clip : known->second.item<double>();
}

/// Returns what a client changed: its upload minus the broadcast as received, [values] float32.
at::Tensor change_of(const SummedLayout& layout, const methods::ClientUpdate& update,
                     const lora::AdapterState& before) {
  auto change = at::empty({layout.values()}, at::kFloat);
  int64_t at = 0;
  for (const auto& part : layout.factors) {
    const auto own = change.narrow(0, at, part.size).view(part.shape);
    own.copy_(update.sent(part.site, part.factor));
    own.sub_((before.at(part.site).*part.factor).to(at::kFloat));
    at += part.size;
  }
  return change;
}

/// Adds a change to the first values, and whether it is within the clip bound to the last.
void add_change(const at::Tensor& change, const privacy::Grid& grid, double weight, std::span<int64_t> sum) {
  const auto size = static_cast<size_t>(change.numel());
  const auto own = privacy::clipped({change.const_data_ptr<float>(), size}, grid, weight);
  for (size_t i = 0; i < size; ++i) sum[i] += own.values[i];
  sum[size] += own.within ? 1 : -1;
}

/// Returns the change of the state: the sum in the units of the factors, divided by the fixed number.
lora::AdapterState change_of_state(const SummedLayout& layout, const at::Tensor& sum, double scale) {
  lora::AdapterState changes;
  int64_t at = 0;
  for (const auto& part : layout.factors) {
    const auto own = sum.narrow(0, at, part.size).to(at::kDouble) * scale;
    changes[part.site].*part.factor = own.to(at::kFloat).view(part.shape);
    at += part.size;
  }
  return changes;
}

}  // namespace

methods::ServerState Server::aggregate_private(const methods::ServerState& state, const methods::RoundView& round,
                                               std::span<const methods::ClientUpdate> updates,
                                               const Aggregation& with) const {
  const auto drawn = draw(state);
  const auto& client = clients.front();  // all receive the same factors
  const auto download = method->broadcast(state, client, drawn);
  const auto layout = layout_of_round(*this, state, client, download);
  methods::RoundTotals totals{.before = received_adapters(*this, download)};
  const double clip = clip_of(*this, state), divisor = private_divisor(*this, drawn);
  const auto grid = privacy::grid_of(layout.values(), clip);
  const auto sum = at::zeros({layout.values() + 1}, at::kLong);
  const std::span<int64_t> values(sum.mutable_data_ptr<int64_t>(), static_cast<size_t>(sum.numel()));
  for (const auto& update : updates)
    add_change(change_of(layout, update, totals.before), grid, private_weight(config->privacy, update.client), values);
  if (with.others) with.others->sum(values);
  const double next_clip =
      with.privacy
          ? with.privacy->add_noise({.drawn = drawn, .grid = grid, .clip = clip, .divisor = divisor, .values = values})
          : clip;
  totals.changes = change_of_state(layout, sum, grid.step / divisor);
  const methods::Uploads uploads(updates, share_of(round, updates, with.others), totals);
  auto next = method->aggregate(view(state.round), state, round, uploads);
  if (config->privacy.adapt.is_on()) next.memory[kClip] = at::full({1}, next_clip, at::kDouble);
  return next;
}

}  // namespace evenkeel::fed
