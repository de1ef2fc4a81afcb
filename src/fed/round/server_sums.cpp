// Server's part of a round whose uploads stay hidden ([secure_aggregation]): the terms of each client, and the sum of
// the summands that arrived.
#include "fed/exchange/summed_upload.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/plain/log.h"
#include "fed/config/sampling.h"
#include "fed/exchange/simulated_masks.h"
#include "fed/round/round_sum.h"
#include "fed/round/server.h"
#include "fed/round/update_size.h"

namespace evenkeel::fed {
namespace {

/// Share of cut values above which the range is too small to go unsaid.
constexpr double kManyBeyond = 1e-6;

/// Returns the power of two at or above 4 lr steps: AdamW moves a value by about lr in a step.
double usual_range(const Server& server) {
  int64_t steps = 1;
  for (const auto& client : server.clients)
    steps = std::max(steps, train::local_steps(server.config->train, static_cast<int64_t>(client.examples)));
  return std::exp2(std::ceil(std::log2(4 * server.config->train.optimizer.lr * static_cast<double>(steps))));
}

/// Checks that enough clients are left for a sum that hides each of them.
void check_threshold(const Server& server, const methods::RoundView& round, size_t drawn) {
  const auto& secure = server.config->secure_aggregation;
  if (secure.mode != SecureMode::kMasks && !server.config->privacy.protects_clients()) return;
  const int64_t threshold = secure.threshold_of(static_cast<int64_t>(drawn)), left = std::ssize(round.participants);
  EK_CHECK(left >= threshold, kData, "round ", round.round + 1, ": ", left, " of ", drawn,
           " uploads arrived, secure_aggregation.threshold is ", threshold, ": the sum stays masked");
}

void add_over_processes(const lora::Reduction& others, at::Tensor& part) {
  auto wide = secure::widened(part).contiguous();
  others.sum({wide.mutable_data_ptr<int64_t>(), static_cast<size_t>(wide.numel())});
  part = secure::narrowed(wide, part.scalar_type());
}

secure::RingVector sum_here(const SummedLayout& layout, const secure::RingFormat& format,
                            std::span<const methods::ClientUpdate> updates) {
  const secure::RingVector sum{format.zeros(layout.values()), at::zeros({layout.counts()}, at::kLong)};
  for (const auto& update : updates) {
    secure::add_to(sum.values, update.extra(kSummedValues));
    secure::add_to(sum.counts, update.extra(kSummedCounts));
  }
  return sum;
}

std::vector<int64_t> ids_of(const methods::RoundView& round) {
  std::vector<int64_t> ids;
  for (const auto& client : round.participants) ids.push_back(client.id);
  return ids;
}

/// Returns the share of the drawn clients' weight that those who are left have.
double weight_left(const methods::RoundView& drawn, const methods::RoundView& round) {
  double sum = 0;
  for (size_t i = 0; i < drawn.participants.size(); ++i)
    if (std::any_of(round.participants.begin(), round.participants.end(),
                    [&](const auto& client) { return client.id == drawn.participants[i].id; }))
      sum += drawn.weights[i];
  return sum;
}

void warn_of_cut_values(const SummedReport& report, int64_t round, double range) {
  const double all = static_cast<double>(report.values) * static_cast<double>(report.clients);
  if (static_cast<double>(report.beyond) > kManyBeyond * all)
    log::warning("[train] round ", round + 1, ": ", report.beyond, " of ", report.values * report.clients,
                 " changes were larger than secure_aggregation.range = ", range, " and were cut to it");
}

/// Returns the round with the clients of the roster alone.
methods::RoundView drawn_in(methods::RoundView drawn, const std::vector<int64_t>& roster) {
  std::vector<int64_t> others;
  for (const int64_t id : ids_of(drawn))
    if (std::find(roster.begin(), roster.end(), id) == roster.end()) others.push_back(id);
  return others.empty() ? drawn : without(std::move(drawn), others);
}

/// Adds the summands that are here and on other processes, and takes simulated masks off.
secure::RingVector simulated_sum(const Server& server, const SummedLayout& layout, const SummedTerms& terms,
                                 const methods::RoundView& round, std::span<const methods::ClientUpdate> updates,
                                 const lora::Reduction* others) {
  auto sum = sum_here(layout, terms.format(), updates);
  if (others) {
    add_over_processes(*others, sum.values);
    add_over_processes(*others, sum.counts);
  }
  if (server.config->secure_aggregation.mode == SecureMode::kMasks)
    SimulatedMasks(server.seed(), round.round, terms.roster).remove(ids_of(round), sum);
  return sum;
}

/// Reads the sum of a round's summands.
SummedRound sum_of_round(const Server& server, const methods::ServerState& state, const methods::RoundView& round,
                         std::span<const methods::ClientUpdate> updates, const Aggregation& with) {
  const auto& client = round.participants.front();
  const auto download = server.method->broadcast(state, client, {.round = round.round});
  const auto layout = layout_of_round(server, state, client, download);
  const auto [drawn, terms, sum] = sum_of_summands(server, round, layout, updates, with);
  const auto format = with.unmasked ? with.unmasked->format : terms.format();
  auto result = read_sum(layout, sum, format, weight_left(drawn, round), std::ssize(round.participants));
  result.totals.before = received_adapters(server, download);
  warn_of_cut_values(result.report, round.round, format.range);
  return result;
}

}  // namespace

SummedLayout layout_of_round(const Server& server, const methods::ServerState& state,
                             const methods::ClientProfile& client, const lora::Payload& download) {
  const SummedRun run{.method = *server.method,
                      .entry = server.config->method.entry(),
                      .sites = server.sites,
                      .moe_layers = server.model.moe_layers,
                      .experts = server.model.num_experts,
                      .reports = server.config->secure_aggregation.reports,
                      .adds_noise = server.adds_noise_in_clients()};
  return summed_layout(run, {client, expected_upload(server, state, client, download)});
}

SumOfSummands sum_of_summands(const Server& server, const methods::RoundView& round, const SummedLayout& layout,
                              std::span<const methods::ClientUpdate> updates, const Aggregation& with) {
  const auto* unmasked = with.unmasked;
  auto roster = server.drawn(round.round);
  if (unmasked) roster = drawn_in(std::move(roster), unmasked->roster);
  check_threshold(server, round, roster.participants.size());
  auto terms = server.summed_terms(roster, round.participants.front()).value();
  auto sum = unmasked ? unmasked->sum : simulated_sum(server, layout, terms, round, updates, with.others);
  return {std::move(roster), std::move(terms), std::move(sum)};
}

lora::AdapterState received_adapters(const Server& server, const lora::Payload& download) {
  lora::AdapterState received;
  for (const auto& [site, factors] : download.adapters)
    received[site] = lora::received(lora::rounded_for_transport(factors, server.config->train.transport_dtype));
  return received;
}

std::optional<SummedTerms> Server::summed_terms(const methods::RoundView& drawn,
                                                const methods::ClientProfile& client) const {
  const auto& secure = config->secure_aggregation;
  const auto ids = ids_of(drawn);
  const auto place = std::find(ids.begin(), ids.end(), client.id);
  if (!secure.hides_uploads() || place == ids.end()) return {};
  const double range = secure.range > 0 ? secure.range : usual_range(*this);
  const auto format = secure::RingFormat::of(secure.bits, range, std::ssize(ids));
  return SummedTerms{.weight = drawn.weights[static_cast<size_t>(place - ids.begin())],
                     .roster = ids,
                     .bits = format.bits,
                     .exponent = format.exponent,
                     .range = format.range};
}

SummedLayout Server::summed_layout(const methods::ServerState& state, const methods::ClientProfile& client) const {
  return layout_of_round(*this, state, client, method->broadcast(state, client, {.round = state.round}));
}

secure::RoundContext Server::masked_terms(const methods::ServerState& state, const methods::RoundView& roster) const {
  const auto& client = roster.participants.front();
  const auto terms = complete_terms(state, roster, client).value();
  const auto layout = summed_layout(state, client);
  secure::RoundContext context{.round = roster.round,
                               .bits = terms.bits,
                               .exponent = terms.exponent,
                               .range = terms.range,
                               .threshold = config->secure_aggregation.threshold_of(std::ssize(terms.roster)),
                               .values = layout.values(),
                               .counts = layout.counts()};
  if (terms.noise) {
    context.clip = terms.noise->clip;
    context.variance = terms.noise->member.variance;
    context.indicator_variance = terms.noise->member.indicator;
  }
  for (size_t place = 0; place < terms.roster.size(); ++place)
    context.roster.push_back({.client = terms.roster[place], .weight = roster.weights[place]});
  return context;
}

methods::ServerState Server::aggregate_sum(const methods::ServerState& state, const methods::RoundView& round,
                                           std::span<const methods::ClientUpdate> updates,
                                           const Aggregation& with) const {
  auto sum = sum_of_round(*this, state, round, updates, with);
  if (with.report) *with.report = std::move(sum.report);
  const methods::Uploads uploads(updates, share_of(round, updates, with.others), sum.totals);
  return method->aggregate(view(state.round), state, round, uploads);
}

}  // namespace evenkeel::fed
