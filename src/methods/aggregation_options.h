/// \file  Defines the config section [aggregation]: the rule by which the server combines the uploads of a round.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "base/format/config_table.h"
#include "base/format/limits.h"

namespace evenkeel::methods {

/// Selects how a tensor of all uploads becomes one (methods/combining_rule.h).
enum class AggregationRule {
  kMean,         ///< sum_c p_c theta_c, the method's own
  kTrimmedMean,  ///< per value: without the k smallest and the k largest, the mean of the rest by p_c
  kMedian,       ///< per value: the median; p_c does not count
  kClippedMean,  ///< the mean by p_c of updates whose norms are cut to the median norm of the round
  kKrum,         ///< the upload that is closest to its n - f - 2 closest neighbours; p_c does not count
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
    field("trim", trim,
          "trimmed_mean: share of the uploads left out at either end of each value, rounded down to whole uploads, "
          "above 0, below 0.5");
    field("byzantine", byzantine,
          "krum: number f of wrong uploads to withstand, 1 or more; 2 f + 3 clients or more are drawn per round");
  }
  void resolve(const config::Table& table) const {
    table.check(trim > 0 && trim < 0.5, "trim", trim, "above 0, below 0.5");
    table.check_integer("byzantine", byzantine, 1, limits::kClients);
  }

  /// Returns k of the trimmed mean for a number of uploads.
  int64_t trimmed(int64_t uploads) const {
    constexpr double kRounding = 1e-9;  // 0.3 * 10 is below 3
    return static_cast<int64_t>(std::floor(trim * static_cast<double>(uploads) + kRounding));
  }
  /// Returns the fewest uploads that krum withstands `byzantine` wrong ones among: n > 2 f + 2.
  int64_t least_of_krum() const { return 2 * byzantine + 3; }
};

}  // namespace evenkeel::methods
