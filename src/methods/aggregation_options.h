/// \file  Defines the config section [aggregation]: the rule by which the server combines the uploads of a round.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "base/format/config_table.h"
#include "base/format/limits.h"

namespace evenkeel::methods {

/// Selects how the clients' values of a tensor are combined into one tensor (methods/combining_rule.h).
enum class AggregationRule {
  kMean,         ///< sum_c p_c theta_c, or what the method computes instead
  kTrimmedMean,  ///< per value: the p_c-weighted mean without the k smallest and the k largest values
  kMedian,       ///< per value: the median, not weighted by p_c
  kClippedMean,  ///< the p_c-weighted mean of updates whose norms are clipped to the round's median norm
  kKrum,         ///< the upload with the least sum of squared distances to its n - f - 2 nearest; p_c is not used
};
constexpr auto names(AggregationRule) {
  return std::array{config::EnumName<AggregationRule>{"mean", AggregationRule::kMean},
                    config::EnumName<AggregationRule>{"trimmed_mean", AggregationRule::kTrimmedMean},
                    config::EnumName<AggregationRule>{"median", AggregationRule::kMedian},
                    config::EnumName<AggregationRule>{"clipped_mean", AggregationRule::kClippedMean},
                    config::EnumName<AggregationRule>{"krum", AggregationRule::kKrum}};
}

/// `[aggregation]`.
struct AggregationOptions {
  AggregationRule rule = AggregationRule::kMean;
  double trim = 0.2;
  int64_t byzantine = 1;

  void visit(auto& field) {
    field("rule", rule,
          "how the server combines uploads: mean (weighted by p_c, the method's own), trimmed_mean, median (both value "
          "by value), clipped_mean (norms cut to the round's median) or krum (one upload); others than mean only with "
          "methods that average factors (docs/robust-aggregation.md)");
    field(
        "trim", trim,
        "trimmed_mean: share of the drawn clients whose uploads are left out at either end of each value, rounded down "
        "to k whole ones; 2 k + 1 uploads or more must be left of a round; above 0, below 0.5");
    field("byzantine", byzantine,
          "krum: number f of wrong uploads to withstand, 1 or more; 2 f + 3 clients or more are drawn per round");
  }
  void resolve(const config::Table& table) const {
    table.check(trim > 0 && trim < 0.5, "trim", trim, "above 0, below 0.5");
    table.check_integer("byzantine", byzantine, 1, limits::kClients);
  }

  /// Returns k of the trimmed mean of a round for which `drawn` clients are drawn.
  int64_t trimmed(int64_t drawn) const {
    constexpr double kRounding = 1e-9;  // 0.3 * 10 is below 3
    return static_cast<int64_t>(std::floor(trim * static_cast<double>(drawn) + kRounding));
  }
  /// Returns the smallest number n of uploads among which krum withstands f = `byzantine` wrong ones: n > 2 f + 2.
  int64_t least_of_krum() const { return 2 * byzantine + 3; }
};

}  // namespace evenkeel::methods
