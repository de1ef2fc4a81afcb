/// \file  Defines how the learning rate changes over the rounds of a run or the steps of a pre-training.
#pragma once

#include <array>
#include <cstdint>

#include "base/format/config_table.h"

namespace evenkeel::train {

/// Selects how the learning rate falls after the warm-up.
enum class RateKind {
  kConstant,
  kLinear,  ///< falls linearly to final_ratio
  kCosine,  ///< falls along half a cosine to final_ratio (Loshchilov and Hutter, SGDR, 2017, without restarts)
};
constexpr auto names(RateKind) {
  return std::array{config::EnumName<RateKind>{"constant", RateKind::kConstant},
                    config::EnumName<RateKind>{"linear", RateKind::kLinear},
                    config::EnumName<RateKind>{"cosine", RateKind::kCosine}};
}

/// A learning-rate schedule. The texts of visit() explain the fields.
struct RateSchedule {
  RateKind kind = RateKind::kConstant;
  int64_t warmup = 0;
  double final_ratio = 0.1;

  void visit(auto& field) {
    field("kind", kind, "learning rate over rounds: constant, linear or cosine (decay to final_ratio)");
    field("warmup_rounds", warmup, "rounds of linear warm-up to optimizer.lr; 0: none");
    field("final_ratio", final_ratio,
          "linear, cosine: learning rate of the last round as a share of optimizer.lr, in (0, 1]");
  }
  void resolve(const config::Table& table) const;

  /// Returns the factor of the full learning rate in step `step` (0 = the first) of `steps`. It is (step + 1) / warmup
  /// during the warm-up. After it, the factor is 1, or falls from 1 to final_ratio in the last step.
  double at(int64_t step, int64_t steps) const;
  bool is_constant() const { return kind == RateKind::kConstant && warmup == 0; }
  /// Returns true if the rate of a round depends on the total number of rounds.
  bool depends_on_rounds() const { return kind != RateKind::kConstant; }
};

}  // namespace evenkeel::train
