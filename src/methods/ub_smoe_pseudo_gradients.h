/// \file  UB-SMoE's universal pseudo-gradient (Algorithm 3): what the server's last move says to experts that no token
/// of a client chose. Private to UB-SMoE; the equations stand in ub_smoe.cpp.
/// Dimension names: E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "methods/protocol.h"
#include "methods/ub_smoe_options.h"

namespace evenkeel::ubsmoe {

/// In what is broadcast to clients that train: what rho is relative to, the mean K of the participants or K_max.
constexpr const char* kRhoReference = "rho.reference";

/// What becomes of each expert's pseudo-gradient g: weight * clamp(scale * g, -bound, bound).
struct Injection {
  at::Tensor share_E, scale_E{};  // float64
  double bound = std::numeric_limits<double>::infinity();
  at::Tensor clipped_E{};  // bool
};

/// Of a layer's experts, among what a client notes for the steps of its round.
std::string pseudo_grad_norm_of(const std::string& layer);
/// How idle each expert of a layer was in this step, in [0, 1]: the factor of its pseudo-gradient (R10, R17).
at::Tensor idle_share_E(PgActivity activity, std::span<const RoutingByLayer> micro_batches, const std::string& layer);
/// Of everything that trains.
std::vector<at::Tensor> gradients_of(const LocalSetup& setup);
/// Who has an element above `bound` in size. \return [E] bool
at::Tensor any_above_E(std::span<const at::Tensor> g, double bound);

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
  /// The adapter tensors of a layer's experts, [E, r, in] and [E, out, r], and their pseudo-gradients.
  struct ExpertTensors {
    std::vector<at::Tensor> theta, pseudo_grad;
  };
  using Target = std::function<at::Tensor(const at::Tensor& theta)>;

  void inject(const StepView& step, const Target& target, double factor) const;
  Injection injection_of(const StepView& step, const std::string& layer, const ExpertTensors& tensors) const;
  double rho(double reference, int64_t top_k) const;
  double clip_limit(const StepView& step, const std::string& layer, const ExpertTensors& tensors) const;
  void report(Metrics& metrics, const at::Tensor& share_E, const at::Tensor& norm_E, const at::Tensor& clipped_E) const;
  static ExpertTensors expert_tensors(const StepView& step, const std::string& layer);
  double scale(const StepView& step) const;

  // The same by LibTorch's operators, on any device and without waiting for it (ub_smoe_by_operators.cpp).
  void inject_by_operators(const StepView& step, const Target& target, double factor) const;
  Injection injection_by_operators(const StepView& step, const std::string& layer, const ExpertTensors& tensors) const;
  at::Tensor limit_by_operators(const StepView& step, const std::string& layer, const ExpertTensors& tensors) const;
  void clip_by_operators(const StepView& step) const;

  Options options_;
};

}  // namespace evenkeel::ubsmoe
