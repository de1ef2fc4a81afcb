// Server's part of a round that protects its clients ([privacy] unit = "client"): the sum of the clipped changes.
#include <ATen/ATen.h>

#include <algorithm>

#include "fed/round/client_privacy.h"
#include "fed/round/round_sum.h"
#include "privacy/member_noise.h"
#include "secure/ring.h"

namespace evenkeel::fed {
namespace {

constexpr const char* kClip = "privacy.clip";  // in the server's memory: the bound of the next round, if it adapts

double clip_of(const Server& server, const methods::ServerState& state) {
  const auto known = state.memory.find(kClip);
  return known == state.memory.end() ? server.config->privacy.clip : known->second.item<double>();
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

/// What a private round is made of, before its uploads.
struct PrivateRound {
  methods::RoundView drawn;
  lora::Payload download;  // all clients receive the same factors
  SummedLayout layout;
  privacy::Grid grid;
  double clip = 0, divisor = 0;
};

PrivateRound private_round(const Server& server, const methods::ServerState& state) {
  PrivateRound round{.drawn = server.drawn(state.round), .download = {}, .layout = {}, .grid = {}};
  const auto& client = server.clients.front();
  round.download = server.method->broadcast(state, client, round.drawn);
  round.layout = layout_of_round(server, state, client, round.download);
  round.clip = clip_of(server, state);
  round.grid = privacy::grid_of(round.layout.values(), round.clip);
  round.divisor = private_divisor(server, round.drawn);
  return round;
}

/// Returns the noise that each of `members` clients adds.
privacy::MemberNoise noise_of_member(const Server& server, const PrivateRound& round, int64_t members) {
  const auto& privacy = server.config->privacy;
  const double of_indicators = indicator_noise(privacy, expected_clients(server, round.drawn));
  return privacy::member_noise(privacy.noise_multiplier, of_indicators, round.grid,
                               server.config->secure_aggregation.honest_of(members));
}

/// Checks that the noisy sum of so many changes fits into integers of secure_aggregation.bits.
void check_headroom(const Server& server, double largest, int64_t members) {
  const auto& secure = server.config->secure_aggregation;
  EK_CHECK(secure::RingFormat::of(secure.bits, largest, members).exponent >= 0, kConfig, "secure_aggregation.bits is ",
           secure.bits, ": ", members, " changes and their noise add up to ", largest,
           "; choose more bits, or a smaller privacy.noise_multiplier");
}

/// Returns the sum of the clipped changes of the uploads in all processes, and of their indicators.
at::Tensor clean_sum(const Server& server, const PrivateRound& round, const lora::AdapterState& before,
                     std::span<const methods::ClientUpdate> updates, const lora::Reduction* others) {
  const auto sum = at::zeros({round.layout.values() + 1}, at::kLong);
  const std::span<int64_t> values(sum.mutable_data_ptr<int64_t>(), static_cast<size_t>(sum.numel()));
  for (const auto& update : updates)
    add_change(change_of(round.layout, update, before), round.grid,
               private_weight(server.config->privacy, update.client), values);
  if (others) others->sum(values);
  return sum;
}

}  // namespace

std::optional<SummedTerms> Server::complete_terms(const methods::ServerState& state, const methods::RoundView& drawn,
                                                  const methods::ClientProfile& client) const {
  auto terms = summed_terms(drawn, client);
  if (!terms || !adds_noise_in_clients()) return terms;
  const auto round = private_round(*this, state);
  const auto members = std::ssize(terms->roster);
  terms->noise = NoiseTerms{.clip = round.clip, .member = noise_of_member(*this, round, members)};
  terms->exponent = 0;
  terms->range = privacy::largest_sum(terms->noise->member, round.grid, members);
  check_headroom(*this, terms->range, members);
  return terms;
}

void Server::check_private_sum(const methods::ServerState& state, double noise) const {
  const auto drawn = this->drawn(state.round);
  if (adds_noise_in_clients()) {
    complete_terms(state, drawn, drawn.participants.front());
    return;
  }
  privacy::noise_variance(noise, private_round(*this, state).grid);
}

methods::ServerState Server::aggregate_private(const methods::ServerState& state, const methods::RoundView& round,
                                               std::span<const methods::ClientUpdate> updates,
                                               const Aggregation& with) const {
  const auto own = private_round(*this, state);
  methods::RoundTotals totals{.before = received_adapters(*this, own.download)};
  at::Tensor sum;
  std::optional<NoiseOfClients> added;
  if (adds_noise_in_clients()) {
    const auto [roster, terms, noisy] = sum_of_summands(*this, round, own.layout, updates, with);
    const auto members = std::ssize(roster.participants);
    added = NoiseOfClients{.member = noise_of_member(*this, own, members),
                           .clients = std::ssize(round.participants),
                           .honest = config->secure_aggregation.honest_of(members)};
    sum = at::cat({secure::widened(noisy.values), noisy.counts});
    if (with.report)
      *with.report = SummedReport{.clients = added->clients, .values = own.layout.values(), .told = false};
  } else {
    sum = clean_sum(*this, own, totals.before, updates, with.others);
  }
  const std::span<int64_t> values(sum.mutable_data_ptr<int64_t>(), static_cast<size_t>(sum.numel()));
  const PrivateSum released{
      .drawn = own.drawn, .grid = own.grid, .clip = own.clip, .divisor = own.divisor, .values = values, .added = added};
  const double next_clip = with.privacy ? with.privacy->release(released) : own.clip;
  totals.changes = change_of_state(own.layout, sum, own.grid.step / own.divisor);
  const methods::Uploads uploads(updates, share_of(round, updates, with.others), totals);
  auto next = method->aggregate(view(state.round), state, round, uploads);
  if (config->privacy.adapt.is_on()) next.memory[kClip] = at::full({1}, next_clip, at::kDouble);
  return next;
}

}  // namespace evenkeel::fed
