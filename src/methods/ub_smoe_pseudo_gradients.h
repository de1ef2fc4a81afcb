/// \file  UB-SMoE's universal pseudo-gradient (Algorithm 3): what the server's last move says to experts that no token
/// of a client chose. Private to UB-SMoE; the equations stand in ub_smoe.cpp.
/// Dimension names: E experts.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "methods/protocol.h"
#include "methods/ub_smoe_options.h"

namespace evenkeel::ubsmoe {

/// In what is broadcast to clients that train: what rho is relative to, the mean K of the participants or K_max.
constexpr const char* kRhoReference = "rho.reference";

/// What becomes of the pseudo-gradients of a layer's experts in a step.
struct Injection;

class PseudoGradients {
 public:
  explicit PseudoGradients(const Options& options) : options_(options) {}

  // --- server ---

  /// Gt = (Theta - Theta') / divisor of every expert tensor (R15), into next.global.extras; per layer its norms over an
  /// expert's tensors, [E], into next.memory as "<layer>.pseudo_grad_norm".
  static void set(const Sites& sites, const ServerState& old, ServerState& next, double divisor);

  /// Gt by site, of what set() left.
  static AdapterState sent_in(const TensorMap& extras);

  // --- client ---

  /// Adds to the gradients, before the optimiser (pg_apply = "adam_grad").
  void edit_gradients(const StepView& step) const;
  /// Moves the parameters, past the optimiser (pg_apply = "decoupled_sgd").
  void edit_parameters(const StepView& step) const;

 private:
  struct ExpertTensors;
  using Target = std::function<at::Tensor(const at::Tensor& theta)>;

  void inject(const StepView& step, const Target& target, double factor) const;
  Injection injection_of(const StepView& step, const std::string& layer, const ExpertTensors& tensors) const;
  double rho(double reference, int64_t top_k) const;
  double clip_limit(const StepView& step, const std::string& layer, const ExpertTensors& tensors) const;
  void report(Metrics& metrics, const at::Tensor& share_E, const at::Tensor& norm_E, const at::Tensor& clipped_E) const;
  static ExpertTensors expert_tensors(const StepView& step, const std::string& layer);

  Options options_;
};

}  // namespace evenkeel::ubsmoe
