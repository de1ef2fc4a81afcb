#include "fed/round/server.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "base/plain/text.h"
#include "fed/config/sampling.h"
#include "fed/round/virtual_clock.h"
#include "fed/store/state_file.h"
#include "lora/algebra.h"
#include "lora/packing.h"
#include "methods/make_rule.h"

namespace evenkeel::fed {
namespace {

/// Checks that a download does not exceed the client's rank.
void check_rank(const Server& server, const methods::ClientProfile& client, const lora::Payload& download) {
  for (const auto& [site, factors] : download.adapters)
    EK_CHECK(factors.rank() <= client.rank, kConfig, "clients.ranks gives ", server.config->clients.who(client.id),
             " rank ", client.rank, ", but method ", server.config->method.name, " sends rank ", factors.rank(),
             " to every client");
}

/// Returns what a client receives: the method's broadcast, and the last round's change of the base, which goes to all.
lora::Payload download_of(const Server& server, const methods::ServerState& state, const methods::ClientProfile& client,
                          const methods::RoundView& round) {
  auto download = server.method->broadcast(state, client, round);
  for (const auto& [site, delta] : download.base_delta)
    EK_CHECK(state.global.base_delta.contains(site), kConfig, "method ", server.config->method.name,
             " sends a change of the base at ", site, ", allowed: base_delta of the state that aggregate() returns");
  download.base_delta = state.global.base_delta;
  return download;
}

/// Checks that the base changes only if the method's entry says so, on which nodes and the memory estimate rely.
void check_change(const methods::ServerState& next, const MethodSection& method) {
  EK_CHECK(next.global.base_delta.empty() || method.entry().changes_base, kConfig, "method ", method.name,
           " changes the base, and its changes_base is false, allowed: true");
}

/// Returns the config key of a client's budget, for messages.
std::string budget_key(const ClientsSection& clients, int64_t id) {
  if (!clients.budgets.listed()) return "clients.budgets.values";
  const auto key = concat("clients.budgets[", id, "]");
  return clients.name(id) ? concat(key, ", of ", clients.who(id), ",") : key;
}

}  // namespace

std::vector<methods::ClientProfile> Server::profiles(std::span<const int64_t> ids) const {
  std::vector<methods::ClientProfile> chosen;
  for (const int64_t id : ids) chosen.push_back(clients.at(static_cast<size_t>(id)));
  return chosen;
}

int64_t Server::max_rank() const {
  const auto& plans = config.plans();
  const auto lower = [](const ClientPlan& one, const ClientPlan& other) { return one.rank < other.rank; };
  return std::max_element(plans.begin(), plans.end(), lower)->rank;
}

std::vector<std::string> Server::rank_eval_modes() const {
  return config->method.entry().rank_eval_modes(config->evaluate.rank_eval_modes, model.num_experts > 0);
}

int64_t Server::rank_at(const methods::ServerState& state, double budget) const {
  std::optional<int64_t> smallest;
  for (const auto& client : clients) {
    if (client.budget != budget) continue;
    const int64_t rank = method->rank_of(state, client);
    smallest = std::min(smallest.value_or(rank), rank);
  }
  return smallest.value_or(config->method.entry().rank(budget, config->lora.rank));
}

bool Server::bounds_updates() const {
  const auto& bounds = config->clients;
  if (hides_uploads() || config->privacy.protects_clients()) return false;
  return (clients_are_nodes() || bounds.bound_simulated) && (bounds.update_norm > 0 || bounds.update_ratio > 0);
}

bool Server::needs_uploads() const {
  return config->method.entry().needs_individuals || bounds_updates() ||
         config->aggregation.rule != methods::AggregationRule::kMean;
}

methods::ServerView Server::view(int64_t round, methods::GradientSum gradient_sum) const {
  return {.sites = sites,
          .moe_layers = model.moe_layers,
          .num_experts = model.num_experts,
          .max_top_k = model.top_k,
          .score = model.gates.score,
          .norm_behind_experts = model.norm_behind_experts,
          .rank = max_rank(),
          .scale = scale(),
          .lr = config->train.learning_rate(round),
          .seed = seed(),
          .gradient_sum = std::move(gradient_sum),
          .transport = config->train.transport_dtype};
}

/// Fixed factors are sent in float32 so that clients use the server's exact values.
StateUpdate Server::full_sync(const methods::ServerState& state) const {
  StateUpdate news{.round = state.round, .whole = true};
  const lora::Payload all{.adapters = state.common.fixed, .base_delta = state.common.base_change};
  if (!all.adapters.empty() || !all.base_delta.empty())
    news.payload = lora::encode(all, lora::TransportDtype::kAsTheyAre, sites);
  return news;
}

std::optional<double> Server::scheduled_rate(int64_t round) const {
  if (config->train.schedule.is_constant()) return std::nullopt;
  return config->train.learning_rate(round);
}

methods::RoundView Server::drawn(int64_t round) const {
  const auto& privacy = config->privacy;
  const bool equal_weights = config->secure_aggregation.weights == SumWeights::kUniform ||
                             (privacy.protects_clients() && privacy.weights == SumWeights::kUniform);
  if (privacy.sampling == PrivacySampling::kPoisson)
    return draw_poisson(clients, config->clients.participation, seeded_privacy_key(seed()), round, equal_weights);
  return draw_round(clients, config->clients.participation, seed(), round, equal_weights);
}

methods::RoundView Server::draw(const methods::ServerState& state) const {
  auto view = this->drawn(state.round);
  if (config->privacy.sampling == PrivacySampling::kPoisson) return view;  // an empty round is a round
  const auto drawn = static_cast<int64_t>(view.participants.size());
  EK_CHECK(drawn >= config->clients.quorum, kData, "round ", state.round + 1, ": ", drawn,
           " clients are drawn among those that have joined and are not left out, clients.quorum is ",
           config->clients.quorum);
  return view;
}

Task Server::training_task(const methods::ServerState& state, const methods::ClientProfile& client,
                           const methods::RoundView& round, Broadcasts* sent) const {
  Broadcasts alone;
  auto& broadcasts = sent ? *sent : alone;
  return {
      .round = round.round,
      .client = client,
      .ask = Train{.lr = scheduled_rate(state.round), .summed = complete_terms(state, round, client)},
      .payload = broadcasts.encoded(download_of(*this, state, client, round), config->train.transport_dtype, sites)};
}

StateUpdate Server::change_update(const methods::ServerState& state) const {
  StateUpdate news{.round = state.round};
  if (!state.global.base_delta.empty())
    news.payload = lora::encode({.base_delta = state.global.base_delta}, config->train.transport_dtype, sites);
  return news;
}

methods::UploadShare Server::share_of(const methods::RoundView& round, std::span<const methods::ClientUpdate> updates,
                                      const lora::Reduction* others) const {
  methods::UploadShare share{.places = {}, .total = round.participants.size(), .others = others};
  for (const auto& update : updates) {
    const auto found =
        std::find_if(round.participants.begin(), round.participants.end(),
                     [&](const methods::ClientProfile& client) { return client.id == update.client.id; });
    EK_CHECK(found != round.participants.end(), kInternal, "aggregate: client ", update.client.id, " is not of round ",
             round.round);
    share.places.push_back(static_cast<size_t>(found - round.participants.begin()));
  }
  return share;
}

methods::ServerState Server::aggregate_uploads(const methods::ServerState& state, const methods::RoundView& round,
                                               std::span<const methods::ClientUpdate> updates,
                                               const lora::Reduction* others) const {
  const auto rule = others ? nullptr
                           : methods::make_rule(config->aggregation, updates, state.global,
                                                std::ssize(drawn(state.round).participants));
  const methods::Uploads uploads =
      others ? methods::Uploads(updates, share_of(round, updates, others))
             : methods::Uploads(updates, config->method.entry().needs_individuals, {rule.get(), &state.global});
  return method->aggregate(view(state.round), state, round, uploads);
}

methods::ServerState Server::aggregate(const methods::ServerState& state, const methods::RoundView& round,
                                       std::span<const methods::ClientUpdate> updates, const Aggregation& with) const {
  auto now = state;
  now.global.base_delta.clear();  // a method may return the state that it gets, and clients have this change
  auto next = config->privacy.protects_clients() ? aggregate_private(now, round, updates, with)
              : hides_uploads()                  ? aggregate_sum(now, round, updates, with)
                                                 : aggregate_uploads(now, round, updates, with.others);
  next.round = state.round + 1;
  const auto who = concat("aggregate of round ", round.round);
  check_change(next, config->method);
  lora::check_finite(next.global.adapters, who);
  lora::check_finite(next.global.base_delta, who);
  methods::add_base_delta(next, config->train.transport_dtype);
  next.unadapted = unadapted_sites(next, sites);
  check_state(next, sites, who);
  return next;
}

int64_t Server::whole_rank(const methods::ServerState& state) const {
  int64_t rank = max_rank();
  for (const auto& [site, factors] : state.global.adapters) rank = std::max(rank, factors.rank());
  return rank;
}

methods::ClientProfile Server::evaluator(const methods::ServerState& state, const EvaluationPoint& point) const {
  const bool cut = point.rank_eval_mode == "a";
  const auto rank = [&] {
    return point.client ? method->rank_of(state, clients.at(static_cast<size_t>(point.client->id)))
                        : rank_at(state, point.budget);
  };
  return {.id = point.own_rows() ? point.client->id : kEvaluator,
          .budget = point.budget,
          .top_k = cut ? model.top_k : active_experts(model, point.budget, "evaluation budget"),
          .rank = cut ? std::min(rank(), max_rank()) : whole_rank(state),
          .examples = 0,
          .trains = false};
}

Task Server::scoring_task(const methods::ServerState& state, const EvaluationPoint& point, Score ask) const {
  ask.rank_eval_mode = point.rank_eval_mode;
  ask.served_by = point.served_by;
  ask.own_rows = point.own_rows();
  const auto client = evaluator(state, point);
  if (point.served_by == scoring::ServedBy::kRun) {
    auto task = training_task(state, client, {.round = state.round});
    task.ask = std::move(ask);
    return task;
  }
  return {.round = state.round,
          .client = client,
          .ask = std::move(ask),
          .payload = lora::encode({.adapters = methods::whole_adapter(state)}, lora::TransportDtype::kFloat32, sites)};
}

methods::LocalSetup Server::setup_of(const methods::ServerState& state, const methods::ClientProfile& client) const {
  TensorMap memory;
  const methods::ClientView view{.client = client,
                                 .sites = sites,
                                 .common = state.common,
                                 .scale = scale(),
                                 .gate_norm = config->method.gate_norm,
                                 .round = state.round,
                                 .seed = seed(),
                                 .memory = memory};
  return method->prepare(method->broadcast(state, client, {.round = state.round}), view);
}

UnexportableRouting Server::unexportable_routing(const methods::ServerState& state,
                                                 const EvaluationPoint& point) const {
  return fed::unexportable_routing(setup_of(state, evaluator(state, point)).router, model.gates);
}

void Server::dry_run(const methods::ServerState& state) const {
  const auto weaker = [](const auto& x, const auto& y) { return x.rank < y.rank; };
  methods::ClientProfile client = *std::min_element(clients.begin(), clients.end(), weaker);
  client.trains = false;
  check_rank(*this, client, method->broadcast(state, client, {.round = state.round}));
  setup_of(state, client);
}

int64_t active_experts(const models::ModelSpec& model, double budget, std::string_view who) {
  if (model.num_experts == 0) return 0;
  const int64_t active = methods::experts_at(budget, model.top_k);
  EK_CHECK(active >= 1, kConfig, who, " is ", budget, ": floor(", model.top_k, " experts per token * ", budget,
           ") = 0, allowed: ", 1.0 / static_cast<double>(model.top_k), " or more");
  return active;
}

std::vector<methods::ClientProfile> make_clients(const RunConfig& config, const models::ModelSpec& model,
                                                 std::span<const size_t> examples) {
  std::vector<methods::ClientProfile> clients;
  for (const auto& plan : config.plans()) {
    const auto id = static_cast<int64_t>(clients.size());
    const int64_t top_k = config->method.entry().top_k(plan.budget, model.top_k);
    if (top_k == 0) active_experts(model, plan.budget, budget_key(config->clients, id));
    clients.push_back({.id = id,
                       .budget = plan.budget,
                       .top_k = top_k,
                       .rank = plan.rank,
                       .examples = examples.empty() ? 0 : static_cast<double>(examples[clients.size()]),
                       .trains = true,
                       .end_round = config->clients.until(id).value_or(std::numeric_limits<int64_t>::max())});
  }
  check_machines(config, clients);
  return clients;
}

}  // namespace evenkeel::fed
