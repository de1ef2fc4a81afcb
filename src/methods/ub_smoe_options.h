/// \file  Defines the config keys of `[method.ub-smoe]`. They select an interpretation where the paper is ambiguous
/// (docs/ambiguities.md, by R-number). The texts of visit() explain the keys and their values.
/// Private to UB-SMoE.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel::methods::ubsmoe {

enum class DmrMode { kCandidate, kPreserve, kCandidateWide };
enum class PhiUpdate { kUtilization, kOff };
enum class PhiTrain { kOff, kLocalDiscard, kLocalFedavg };
enum class PhiPenalty { kHinge, kL2 };
enum class PgActivity { kStepUnion, kTokenWeighted, kMicroUnion };
enum class PgSource { kOwn, kPlacebo, kMomentum, kOracle };
enum class GateScores { kModulated, kRaw };
enum class PhiScale { kRange, kNone, kClip };
enum class PgApply { kAdamGrad, kDecoupledSgd };
enum class PgClipMode { kRelative, kPerExpertNorm, kElementwise, kGlobalNorm, kOff };
enum class PgGamma { kOptSteps, kLiteral };
enum class RhoRef { kKbar, kKmax };
enum class KbarOver { kParticipants, kClients };
enum class UtilFrequency { kPerToken, kPerSelection };
enum class RhoFn { kSqrt, kNone, kLinear, kInvSqrt, kLog };

constexpr auto names(DmrMode) {
  return std::array{config::EnumName{"candidate", DmrMode::kCandidate},
                    config::EnumName{"preserve", DmrMode::kPreserve},
                    config::EnumName{"candidate_wide", DmrMode::kCandidateWide}};
}
constexpr auto names(PhiUpdate) {
  return std::array{config::EnumName{"utilization", PhiUpdate::kUtilization}, config::EnumName{"off", PhiUpdate::kOff}};
}
constexpr auto names(PhiTrain) {
  return std::array{config::EnumName{"off", PhiTrain::kOff}, config::EnumName{"local_discard", PhiTrain::kLocalDiscard},
                    config::EnumName{"local_fedavg", PhiTrain::kLocalFedavg}};
}
constexpr auto names(GateScores) {
  return std::array{config::EnumName{"modulated", GateScores::kModulated}, config::EnumName{"raw", GateScores::kRaw}};
}
constexpr auto names(PhiScale) {
  return std::array{config::EnumName{"range", PhiScale::kRange}, config::EnumName{"none", PhiScale::kNone},
                    config::EnumName{"clip", PhiScale::kClip}};
}
constexpr auto names(PhiPenalty) {
  return std::array{config::EnumName{"hinge", PhiPenalty::kHinge}, config::EnumName{"l2", PhiPenalty::kL2}};
}
constexpr auto names(PgActivity) {
  return std::array{config::EnumName{"step_union", PgActivity::kStepUnion},
                    config::EnumName{"token_weighted", PgActivity::kTokenWeighted},
                    config::EnumName{"micro_union", PgActivity::kMicroUnion}};
}
constexpr auto names(PgApply) {
  return std::array{config::EnumName{"adam_grad", PgApply::kAdamGrad},
                    config::EnumName{"decoupled_sgd", PgApply::kDecoupledSgd}};
}
constexpr auto names(PgClipMode) {
  return std::array{config::EnumName{"relative", PgClipMode::kRelative},
                    config::EnumName{"per_expert_norm", PgClipMode::kPerExpertNorm},
                    config::EnumName{"elementwise", PgClipMode::kElementwise},
                    config::EnumName{"global_norm", PgClipMode::kGlobalNorm},
                    config::EnumName{"off", PgClipMode::kOff}};
}
constexpr auto names(PgGamma) {
  return std::array{config::EnumName{"opt_steps", PgGamma::kOptSteps},
                    config::EnumName{"literal_0.4", PgGamma::kLiteral}};
}
constexpr auto names(PgSource) {
  return std::array{config::EnumName{"own", PgSource::kOwn}, config::EnumName{"placebo", PgSource::kPlacebo},
                    config::EnumName{"momentum", PgSource::kMomentum}, config::EnumName{"oracle", PgSource::kOracle}};
}
constexpr auto names(KbarOver) {
  return std::array{config::EnumName{"participants", KbarOver::kParticipants},
                    config::EnumName{"clients", KbarOver::kClients}};
}
constexpr auto names(UtilFrequency) {
  return std::array{config::EnumName{"per_token", UtilFrequency::kPerToken},
                    config::EnumName{"per_selection", UtilFrequency::kPerSelection}};
}
constexpr auto names(RhoRef) {
  return std::array{config::EnumName{"kbar", RhoRef::kKbar}, config::EnumName{"kmax", RhoRef::kKmax}};
}
constexpr auto names(RhoFn) {
  return std::array{config::EnumName{"sqrt", RhoFn::kSqrt}, config::EnumName{"none", RhoFn::kNone},
                    config::EnumName{"linear", RhoFn::kLinear}, config::EnumName{"inv_sqrt", RhoFn::kInvSqrt},
                    config::EnumName{"log", RhoFn::kLog}};
}

constexpr int64_t kWideCandidates = 16;  // R1b: satisfies K_max <= N_p << M with K_max = 8 and M = 64

/// Values of the keys. The texts of visit() explain each.
struct Options {
  DmrMode dmr_mode = DmrMode::kCandidate;
  int64_t num_candidates = 2;
  GateScores gate_scores = GateScores::kModulated;
  PhiUpdate phi_update = PhiUpdate::kUtilization;
  double phi_momentum = 0.9;
  std::vector<double> phi_range = {-1.0, 1.0};
  PhiScale phi_scale = PhiScale::kRange;
  UtilFrequency util_frequency = UtilFrequency::kPerToken;
  double util_eps = 1e-8;
  PhiTrain phi_train = PhiTrain::kLocalDiscard;
  PhiPenalty phi_penalty = PhiPenalty::kHinge;
  double lambda_phi = 0.01;
  bool phi_at_eval = true;
  bool pg = true;
  PgSource pg_source = PgSource::kOwn;
  PgActivity pg_activity = PgActivity::kStepUnion;
  PgApply pg_apply = PgApply::kDecoupledSgd;
  PgClipMode pg_clip_mode = PgClipMode::kRelative;
  double pg_clip = 2.0;
  PgGamma pg_gamma = PgGamma::kOptSteps;
  KbarOver kbar_over = KbarOver::kParticipants;
  RhoRef rho_ref = RhoRef::kKbar;
  RhoFn rho_fn = RhoFn::kSqrt;

  void visit(auto& field) {
    field("dmr_mode", dmr_mode,
          "experts whose logits get phi: the raw top N_p (candidate, candidate_wide) or all others (preserve)");
    field("num_candidates", num_candidates,
          "N_p, 0 .. number of experts; default 2, or 16 with candidate_wide; candidate with 0: no phi");
    field("gate_scores", gate_scores, "scores that gate weights follow: modulated (with phi) or raw");
    field("phi_update", phi_update,
          "utilization (the server updates phi by utilization) or off (only phi_train changes phi)");
    field("phi_momentum", phi_momentum, "zeta, share of the last phi that is kept, 0 .. 1");
    field("phi_range", phi_range,
          "bounds [min, max] of phi with min <= 0 <= max, beyond which the hinge penalty begins");
    field("phi_scale", phi_scale,
          "tanh in phi's update: times the bound of its sign (range), unscaled (none) or clipped to phi_range (clip)");
    field("util_frequency", util_frequency,
          "utilization of an expert on a client: per_token (a / n, target Kbar / M) or per_selection (a / (n K_c), "
          "target 1 / M)");
    field("util_eps", util_eps, "added to a utilization before division by it, > 0");
    field("phi_train", phi_train,
          "training of phi on clients: off, local_discard (clients discard it) or local_fedavg (clients send it)");
    field("phi_penalty", phi_penalty, "penalty of a trained phi: hinge (outside phi_range) or l2");
    field("lambda_phi", lambda_phi, "weight of phi_penalty, 0 or more");
    field("phi_at_eval", phi_at_eval, "add phi in the routing of evaluations");
    field("pg", pg, "compute pseudo-gradients for idle experts");
    field("pg_source", pg_source,
          "term of idle experts, at the norm of their own Gt: own (Gt), or for studies placebo (Gt of another idle "
          "expert of the layer), momentum (Gt for all experts, active ones too, at the layer's mean idle share) or "
          "oracle (the client's gradient of the step with the checkpoint's K, by a second pass in every step)");
    field("pg_activity", pg_activity,
          "criterion of an idle expert: step_union (unused in the step), token_weighted (share of tokens) or "
          "micro_union (share of micro-batches)");
    field("pg_apply", pg_apply,
          "pseudo-gradients: adam_grad (as gradients of AdamW) or decoupled_sgd (theta -= lr * rho * Gt)");
    field("pg_clip_mode", pg_clip_mode,
          "quantity that pg_clip bounds: an expert's norm of rho * Gt, relative to active experts (relative) or "
          "absolute (per_expert_norm), each element (elementwise), the norm of real and pseudo-gradients together "
          "(global_norm), or nothing (off)");
    field("pg_clip", pg_clip, "bound of the quantity in pg_clip_mode, > 0");
    field("pg_gamma", pg_gamma,
          "divisor of Gt besides the learning rate: opt_steps (mean optimiser steps of a client) or literal_0.4 (0.4)");
    field("kbar_over", kbar_over,
          "clients over which Kbar, the mean of K_c, is taken: participants (of the round) or clients (all)");
    field("rho_ref", rho_ref, "ref in x = ref / K_c: kbar (Kbar, see kbar_over) or kmax (K of the checkpoint)");
    field("rho_fn", rho_fn, "rho: sqrt (sqrt(x)), none (1), linear (x), inv_sqrt (sqrt(1 / x)) or log (ln(x + 1))");
  }

  /// Checks the values and sets the default of num_candidates. \throws kConfig naming the key.
  void resolve(const config::Table& table) {
    if (dmr_mode == DmrMode::kCandidateWide && !table.contains("num_candidates")) num_candidates = kWideCandidates;
    table.check(num_candidates >= 0, "num_candidates", num_candidates, "0 .. the model's experts");
    table.check(phi_momentum >= 0 && phi_momentum <= 1, "phi_momentum", phi_momentum, "0 .. 1");
    table.check(phi_range.size() == 2 && phi_range[0] <= 0 && phi_range[1] >= 0 && std::isfinite(phi_range[0]) &&
                    std::isfinite(phi_range[1]),
                "phi_range", concat("[", join(phi_range), "]"), "[min, max] with min <= 0 <= max");
    table.check(util_eps > 0, "util_eps", util_eps, "above 0");
    table.check(lambda_phi >= 0, "lambda_phi", lambda_phi, "0 or more");
    table.check(pg_clip > 0, "pg_clip", pg_clip, "above 0");
  }

  /// Returns true if phi is added to the scores of any expert.
  bool modulates() const { return num_candidates > 0 || dmr_mode == DmrMode::kPreserve; }
};

}  // namespace evenkeel::methods::ubsmoe
