/// \file  Defines the config section [privacy]: differential privacy for single rows (simulated) or for clients.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/format/config_table.h"
#include "base/format/limits.h"
#include "fed/config/secure_aggregation.h"
#include "privacy/limits.h"

namespace evenkeel::fed {

/// Selects what is protected.
enum class PrivacyUnit {
  kOff,
  kExample,  ///< a training row of a client: noise in the gradients of each step (train/private_steps.h)
  kClient,   ///< all rows of a client: noise in the sum of the clients' changes (fed/round/client_privacy.h)
};
constexpr auto names(PrivacyUnit) {
  return std::array{config::EnumName<PrivacyUnit>{"off", PrivacyUnit::kOff},
                    config::EnumName<PrivacyUnit>{"example", PrivacyUnit::kExample},
                    config::EnumName<PrivacyUnit>{"client", PrivacyUnit::kClient}};
}

/// Selects how the clients of a round are drawn, and thereby what the privacy accounting may assume.
enum class PrivacySampling {
  kAll,      ///< every client takes part in every round
  kFixed,    ///< a fixed number, drawn by the public seed; a client's epsilon counts the rounds in which it takes part
  kPoisson,  ///< each client with probability clients.participation; drawn from the seed, so only a simulation
};
constexpr auto names(PrivacySampling) {
  return std::array{config::EnumName<PrivacySampling>{"all", PrivacySampling::kAll},
                    config::EnumName<PrivacySampling>{"fixed", PrivacySampling::kFixed},
                    config::EnumName<PrivacySampling>{"poisson", PrivacySampling::kPoisson}};
}

/// Selects the source of the noise key for unit client.
enum class PrivacyNoise {
  kSecret,  ///< random bytes of the operating system, stored in the run folder
  kSeeded,  ///< the run's seed, which everybody has: reproducible, without a guarantee
};
constexpr auto names(PrivacyNoise) {
  return std::array{config::EnumName<PrivacyNoise>{"secret", PrivacyNoise::kSecret},
                    config::EnumName<PrivacyNoise>{"seeded", PrivacyNoise::kSeeded}};
}

/// `[privacy.adapt]`: moves the clip bound of clients' changes towards a quantile of their norms (Andrew et al. 2021).
struct ClipAdaptation {
  double target = 0, rate = 0.2, indicator_noise = 0;

  void visit(auto& field) {
    field("target", target, "share of clients whose change is to stay within privacy.clip; 0: clip stays as it is");
    field("rate", rate, "speed: clip is multiplied by exp(-rate (share within it - target)) after each round");
    field("indicator_noise", indicator_noise,
          "standard deviation of the noise in the number of clients within clip; 0: a 20th of the clients of a round");
  }
  void resolve(const config::Table& table) const;

  bool is_on() const { return target > 0; }
};

/// `[privacy]`. With unit example, the keys of the noise come from the run's seed. The run then shows what private
/// training would learn, and protects nobody. In a federation, each node's operator switches privacy on
/// (`node --privacy-epsilon`). With unit client, the server adds the noise and is trusted, or with [secure_aggregation]
/// the clients add it.
struct PrivacySection {
  PrivacyUnit unit = PrivacyUnit::kOff;
  double epsilon = 0, delta = 0, noise_multiplier = 0, clip = 0;
  int64_t lot = 0;
  PrivacySampling sampling = PrivacySampling::kAll;
  SumWeights weights = SumWeights::kUniform;
  int64_t weight_cap = 0;
  bool public_sizes = false;
  PrivacyNoise noise = PrivacyNoise::kSecret;
  int64_t noise_cohort = 0;
  std::string continues{};
  ClipAdaptation adapt{};

  void visit(auto& field) {
    field("unit", unit,
          "differential privacy: off, client (all rows of a client, against those who see broadcasts, adapters and "
          "records; the server is trusted, unless secure_aggregation.mode is masks), or example (each training row; "
          "simulated; docs/privacy.md)");
    field("epsilon", epsilon,
          "what all rounds together may cost; sets the noise where noise_multiplier is 0. Unit client: the run ends "
          "before it is exceeded. 0: unset");
    field("delta", delta, "probability with which the guarantee may fail, below 1 / rows or 1 / clients");
    field("noise_multiplier", noise_multiplier,
          "standard deviation of the noise divided by clip; 0: the least for epsilon");
    field("clip", clip,
          "largest norm over all trained values: of a row's gradient, or of a client's change in a round");
    field("lot", lot, "example: expected rows per optimiser step; 0: train.batch_size times train.accumulation");
    field("sampling", sampling,
          "client: who takes part: all, fixed (clients.participation of them, drawn by the public seed) or poisson "
          "(each with probability clients.participation; train only)");
    field("weights", weights,
          "client: weight of a change: uniform, or examples (its rows, up to weight_cap; needs public_sizes)");
    field("weight_cap", weight_cap, "weights = examples: rows above which a client's weight stops growing");
    field("public_sizes", public_sizes, "client: the numbers of rows and steps of clients may be known");
    field("noise", noise,
          "client: key of the noise: secret (in the run folder) or seeded (from the seed: no guarantee; train only)");
    field("noise_cohort", noise_cohort,
          "client: number of clients per round of the larger federation whose noise is simulated, with poisson "
          "sampling; no guarantee for this run; train only; 0: off");
    field("continues", continues,
          "client: run folder of an earlier private run on the same clients, whose account goes on; empty: none");
    field("adapt", adapt, "");
  }
  void resolve(const config::Table& table) const;

  bool protects_clients() const { return unit == PrivacyUnit::kClient; }
  /// Returns true if the noise of a round is the least with which all rounds keep to epsilon.
  bool noise_depends_on_rounds() const { return unit != PrivacyUnit::kOff && noise_multiplier == 0; }
  /// Returns true if nothing is protected, because others know the noise or the draws, or because there is too little
  /// noise.
  bool is_simulated() const {
    return noise == PrivacyNoise::kSeeded || noise_cohort > 0 || sampling == PrivacySampling::kPoisson;
  }

 private:
  void check_unused(const config::Table& table) const;
  void check_amounts(const config::Table& table) const;
  void check_of_clients(const config::Table& table) const;
  void check_no_clients(const config::Table& table, std::string_view when) const;
};

}  // namespace evenkeel::fed
