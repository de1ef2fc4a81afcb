#include "fed/config/privacy_guarantee.h"

namespace evenkeel::fed {
namespace {

/// Returns ": epsilon up to 8 at delta 1e-06", or the noise where there is no budget.
std::string amount(const PrivacySection& privacy) {
  if (privacy.epsilon > 0) return concat("epsilon up to ", privacy.epsilon, " at delta ", privacy.delta);
  return concat("noise multiplier ", privacy.noise_multiplier, ", without a budget");
}

std::string why_simulated(const PrivacySection& privacy) {
  if (privacy.noise == PrivacyNoise::kSeeded) return "the noise follows from the seed";
  if (privacy.noise_cohort > 0) return concat("it has the noise of a cohort of ", privacy.noise_cohort);
  return "the draw of clients follows from the seed";
}

/// Of clients that add the noise themselves.
std::string of_clients_alone(const ExperimentConfig& config) {
  const auto& secure = config.secure_aggregation;
  const auto what =
      concat("all rows of a client against everybody, the server included, ", amount(config.privacy),
             secure.colluders > 0 ? concat(", where up to ", secure.colluders, " clients work together with the server")
                                  : std::string(", where no client works together with the server"),
             "; no server is trusted, because the clients add the noise; not the list of participants, "
             "numbers of rows or times of messages");
  if (secure.mode == SecureMode::kSums)
    return concat(
        "simulated, protects nobody (sums are not masked, and the noise follows from the seed); masks are to "
        "protect ",
        what);
  return concat("masks and noise of the clients are to protect ", what,
                "; in train both are simulated and protect nobody");
}

std::string of_clients(const PrivacySection& privacy) {
  const auto what = privacy.is_simulated() ? concat("simulated, protects nobody (", why_simulated(privacy),
                                                    "); a run in earnest protects ")
                                           : std::string("protects ");
  return concat(what, "all rows of a client against everybody who sees broadcasts, adapters and records, ",
                amount(privacy), "; not against the server, which reads every upload, and not the list of ",
                privacy.public_sizes ? "participants, the numbers of their rows" : "participants",
                " or times of messages");
}

std::string of_sums(const SecureAggregationSection& secure) {
  return secure.mode == SecureMode::kMasks
             ? "masks are to hide single uploads from the server; not their sum, nor what an adapter reveals of rows"
             : "none against the server, which could read the parts of the sums";
}

}  // namespace

std::string privacy_guarantee(const ExperimentConfig& config) {
  switch (config.privacy.unit) {
    case PrivacyUnit::kClient:
      return config.secure_aggregation.hides_uploads() ? of_clients_alone(config) : of_clients(config.privacy);
    case PrivacyUnit::kExample:
      return concat("simulated, protects nobody: shows what training learns that protects each row, ",
                    amount(config.privacy), "; nodes switch it on themselves (node --privacy-epsilon)");
    case PrivacyUnit::kOff:
      break;
  }
  if (config.secure_aggregation.hides_uploads()) return of_sums(config.secure_aggregation);
  return "none: the server reads every upload, and adapters and records may reveal rows";
}

}  // namespace evenkeel::fed
