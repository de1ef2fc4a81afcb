#include "flower/federation/budget_proposal.h"

#include <algorithm>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "data/example.h"
#include "fed/run/machine_speed.h"
#include "flower/federation/agreement.h"

namespace evenkeel::flower {
namespace {

/// Estimates the tokens of a round, from the mean length of the rows.
int64_t round_tokens(const train::LocalTraining& training, const std::vector<data::Example>& rows) {
  const int64_t count = std::ssize(rows);
  return data::tokens_in(rows) * train::rows_of_round(training, count) / std::max<int64_t>(1, count);
}

}  // namespace

TopKProposal proposed_top_k(std::span<const int64_t> top_ks, std::span<const double> speeds, int64_t tokens,
                            double seconds) {
  TopKProposal best{.top_k = top_ks.front()};
  for (size_t i = 0; i < top_ks.size(); ++i)
    if (static_cast<double>(tokens) <= speeds[i] * seconds) best = {.top_k = top_ks[i], .in_time = true};
  return best;
}

std::string proposal_text(const TopKProposal& proposal, int64_t tokens, double seconds, double budget) {
  const auto round = concat("a round of ", tokens, " tokens in ", seconds, " s at ");
  const auto end = concat("K = ", proposal.top_k, ": budget ", budget);
  if (proposal.in_time) return concat("this machine is done with ", round, end);
  return concat("this machine is not done with ", round, "any K; proposed is the smallest, ", end);
}

void propose_budget(fed::Experiment& e, int64_t client, double seconds) {
  constexpr double kMeasure_s = 2;  // of training, per K
  auto& server = e.server;
  EK_CHECK(server.model.num_experts > 0 && !server.config->method.entry().takes_unequal_ranks(), kConfig,
           "--budget auto measures what experts cost; method ", server.config->method.name, " on this model has ",
           server.model.num_experts, " of them and makes clients differ otherwise");
  if (const double deadline = server.config->clients.deadline; deadline > 0) seconds = std::min(seconds, deadline / 2);
  const auto top_ks = fed::measured_top_ks(e);
  const auto profile = fed::measured_profile(e, top_ks, kMeasure_s);
  const auto tokens = round_tokens(server.config->train, e.fabric.shards.examples.at(static_cast<size_t>(client)));
  const auto best = proposed_top_k(top_ks, profile.tokens_per_second, tokens, seconds);
  const double budget = static_cast<double>(best.top_k) / static_cast<double>(server.model.top_k);
  log::info("[node] ", proposal_text(best, tokens, seconds, budget));
  std::vector<size_t> examples;
  for (const auto& shard : e.fabric.shards.examples) examples.push_back(shard.size());
  e.use(with_budgets(server.config, {{client, budget}}));
  server.clients = e.fabric.clients = fed::make_clients(server.config, server.model, examples);
}

}  // namespace evenkeel::flower
