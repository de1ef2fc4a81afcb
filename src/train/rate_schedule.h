/// \file  How the learning rate goes over the rounds of a run, or the steps of a pre-training.
#pragma once

#include <array>
#include <cstdint>

#include "base/format/config_table.h"

namespace evenkeel {

enum class RateKind {
  kConstant,
  kLinear,  ///< falls in equal amounts
  kCosine,  ///< falls along half a cosine (Loshchilov and Hutter, SGDR, 2017, without restarts)
};
constexpr auto names(RateKind) {
  return std::array{config::EnumName<RateKind>{"constant", RateKind::kConstant},
                    config::EnumName<RateKind>{"linear", RateKind::kLinear},
                    config::EnumName<RateKind>{"cosine", RateKind::kCosine}};
}

struct RateSchedule {
  RateKind kind = RateKind::kConstant;
  int64_t warmup = 0;
  double final_ratio = 0.1;

  void visit(auto& field) {
    field("kind", kind, "of the learning rate over rounds: constant, linear or cosine (it falls to final_ratio)");
    field("warmup_rounds", warmup, "rounds in which the rate first rises in equal amounts to optimizer.lr; 0: none");
    field("final_ratio", final_ratio, "linear, cosine: the rate of the last round, as a share of optimizer.lr");
  }
  void resolve(const config::Table& table) const;

  /// Share of the full rate in step `step` (0 = the first) of `steps`: (step + 1) / warmup in the warm-up; then 1, or
  /// falling from 1 to final_ratio in the last step.
  double at(int64_t step, int64_t steps) const;
  bool is_constant() const { return kind == RateKind::kConstant && warmup == 0; }
  /// Whether the number of steps changes the rate of one.
  bool depends_on_rounds() const { return kind != RateKind::kConstant; }
};

}  // namespace evenkeel
