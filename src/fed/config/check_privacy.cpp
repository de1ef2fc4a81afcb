// The rules of [privacy] that concern other sections.
#include <algorithm>

#include "fed/config/experiment_config.h"
#include "fed/config/sampling.h"

namespace evenkeel::fed {
namespace {

/// Checks that privacy of single rows covers what the method and the optimiser do.
void check_rows(const ExperimentConfig& config, const config::Table& table) {
  methods::require_rows_by_gradients(config.method.entry());
  table.table("train").check(config.train.idle_expert_update == train::IdleExpertUpdate::kZeroGrad,
                             "idle_expert_update", concat('"', config::name_of(config.train.idle_expert_update), '"'),
                             "zero_grad where privacy.unit is example");
}

void check_sampling(const ExperimentConfig& config, const config::Table& of_privacy) {
  const auto& privacy = config.privacy;
  const auto& clients = config.clients;
  const auto sampling = concat('"', config::name_of(privacy.sampling), '"');
  of_privacy.check(privacy.sampling != PrivacySampling::kAll || clients.participation == 1, "sampling", sampling,
                   concat("fixed or poisson, where clients.participation is ", clients.participation));
  of_privacy.check(privacy.sampling != PrivacySampling::kPoisson || clients.quorum == 1, "sampling", sampling,
                   concat("all or fixed, where clients.quorum is ", clients.quorum, ": a draw may be smaller"));
  const double drawn = clients.participation * static_cast<double>(clients.count);
  of_privacy.check(privacy.noise_cohort == 0 ||
                       (static_cast<double>(privacy.noise_cohort) >= drawn && privacy.noise_cohort <= clients.count),
                   "noise_cohort", privacy.noise_cohort,
                   concat("0, or ", drawn, " (clients.participation of clients.count) to ", clients.count));
}

/// Checks what does not go together with noise that the clients add.
void check_noise_of_clients(const ExperimentConfig& config, const config::Table& of_privacy) {
  const auto& privacy = config.privacy;
  const auto where = ", where clients add the noise (secure_aggregation.mode)";
  of_privacy.check(privacy.sampling != PrivacySampling::kPoisson, "sampling", "\"poisson\"",
                   concat("all or fixed", where, ": the clients of a round know each other"));
  of_privacy.check(privacy.noise == PrivacyNoise::kSecret, "noise", "\"seeded\"", concat("secret", where));
  of_privacy.check(privacy.noise_multiplier > 0, "noise_multiplier", privacy.noise_multiplier,
                   concat("above 0", where, "; evenkeel privacy computes it for a budget"));
  const auto& secure = config.secure_aggregation;
  of_privacy.check(secure.range == 0, "clip", privacy.clip,
                   "with secure_aggregation.range 0: privacy.clip bounds changes");
  of_privacy.check(secure.weights == SumWeights::kExamples || privacy.weights == SumWeights::kUniform, "weights",
                   "\"examples\"", "uniform, where secure_aggregation.weights is uniform");
}

/// Checks that nothing is released but what the mechanism covers.
void check_clients(const ExperimentConfig& config, const config::Table& table) {
  const auto of_privacy = table.table("privacy");
  methods::check_client_privacy(config.method.entry());
  config.method.make()->check_client_privacy();
  const auto refuse = [&](bool released, std::string_view what) {
    of_privacy.check(!released, "unit", "\"client\"", concat("off, with ", what));
  };
  if (config.secure_aggregation.hides_uploads()) check_noise_of_clients(config, of_privacy);
  refuse(config.aggregation.rule != methods::AggregationRule::kMean, "an aggregation.rule other than mean");
  const ClientsSection defaults;
  refuse(config.clients.bound_simulated || config.clients.update_norm > 0 ||
             (config.clients.update_ratio != defaults.update_ratio && config.clients.update_ratio != 0),
         "clients.bound_simulated, clients.update_norm or clients.update_ratio, which leave out clients by their "
         "updates: privacy.clip bounds them");
  refuse(!config.client_profiles.profiles.empty(), "client_profiles, whose times depend on rows");
  refuse(config.evaluate.per_client, "evaluate.per_client, which shows scores of single clients");
  const auto rows = config.rows();
  refuse(std::any_of(rows.files.clients.begin(), rows.files.clients.end(), [](const auto& own) { return own.tests(); }),
         "test rows of clients (clients.client[].test, data.files.held_out above 0), whose scores are not covered: "
         "score public test rows on the server (evaluate.tasks)");
  check_sampling(config, of_privacy);
}

}  // namespace

void ExperimentConfig::check_privacy(const config::Table& table) const {
  if (privacy.unit == PrivacyUnit::kExample) check_rows(*this, table);
  if (privacy.protects_clients()) check_clients(*this, table);
}

}  // namespace evenkeel::fed
