/// \file  Defines the config section [privacy]: simulated differential privacy for single rows.
#pragma once

#include <array>
#include <cstdint>

#include "base/format/config_table.h"
#include "base/format/limits.h"
#include "privacy/limits.h"

namespace evenkeel::fed {

/// Selects what is protected.
enum class PrivacyUnit {
  kOff,
  kExample,  ///< a training row of a client: noise in the gradients of each step (train/private_steps.h)
};
constexpr auto names(PrivacyUnit) {
  return std::array{config::EnumName<PrivacyUnit>{"off", PrivacyUnit::kOff},
                    config::EnumName<PrivacyUnit>{"example", PrivacyUnit::kExample}};
}

/// `[privacy]`. The keys of the noise come from the run's seed, so it shows what private training would learn, and
/// protects nobody. In a federation, each node's operator switches privacy on (`node --privacy-epsilon`).
struct PrivacySection {
  PrivacyUnit unit = PrivacyUnit::kOff;
  double epsilon = 0, delta = 0, noise_multiplier = 0, clip = 0;
  int64_t lot = 0;

  void visit(auto& field) {
    field("unit", unit,
          "simulated differential privacy: off, or example (each training row of a client; docs/privacy.md)");
    field("epsilon", epsilon,
          "what all rounds together may cost each client; sets the noise. Either this or noise_multiplier; 0: unset");
    field("delta", delta, "probability with which the guarantee may fail, below 1 / rows of a client");
    field("noise_multiplier", noise_multiplier,
          "standard deviation of the noise divided by clip; 0: the least for epsilon");
    field("clip", clip, "largest norm of the gradient of one row over all trained values");
    field("lot", lot, "expected rows per optimiser step; 0: train.batch_size times train.accumulation");
  }
  void resolve(const config::Table& table) const {
    if (unit == PrivacyUnit::kOff) return check_unused(table);
    table.check((epsilon > 0) != (noise_multiplier > 0), "epsilon", epsilon,
                "above 0, or 0 where noise_multiplier is above 0");
    table.check(epsilon >= 0 && epsilon <= privacy::kMostEpsilon, "epsilon", epsilon, "0 to 1000000");
    table.check(
        noise_multiplier == 0 || (noise_multiplier >= privacy::kLeastNoise && noise_multiplier <= privacy::kMostNoise),
        "noise_multiplier", noise_multiplier, "0, or 0.01 to 1000");
    table.check(delta >= privacy::kLeastDelta && delta < 1, "delta", delta, "above 0, below 1");
    table.check_above_zero("clip", clip);
    table.check_integer("lot", lot, 0, limits::kRows);
  }

 private:
  void check_unused(const config::Table& table) const {
    constexpr auto kUnset = "0 where unit is off";
    table.check(epsilon == 0, "epsilon", epsilon, kUnset);
    table.check(delta == 0, "delta", delta, kUnset);
    table.check(noise_multiplier == 0, "noise_multiplier", noise_multiplier, kUnset);
    table.check(clip == 0, "clip", clip, kUnset);
    table.check(lot == 0, "lot", lot, kUnset);
  }
};

}  // namespace evenkeel::fed
