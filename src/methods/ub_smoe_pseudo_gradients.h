/// \file  Computes UB-SMoE's universal pseudo-gradient (Algorithm 3), which updates experts that no token of a client
/// chose. Gt is the server's last update of the expert tensors, divided as PseudoGradients::set() says. ub_smoe.cpp
/// gives the equations. R-numbers refer to docs/ambiguities.md. Private to UB-SMoE. Dimensions: L layers, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "methods/protocol.h"
#include "methods/ub_smoe_options.h"
#include "methods/ub_smoe_sources.h"

namespace evenkeel::methods::ubsmoe {

/// Key of a broadcast tensor: the reference K of rho, which is Kbar or K_max (`rho_ref`). A float64 scalar.
constexpr const char* kRhoReference = "rho.reference";

/// Describes how the pseudo-gradient of each expert is scaled.
struct Injection {
  nn::TermScales scales;
  at::Tensor clipped_LE{};  ///< bool, true: the scale or bound reduced the expert's pseudo-gradient
};

/// Returns the key of the norms of a layer's pseudo-gradients, [E], in ServerState::memory.
std::string pseudo_grad_norm_of(const std::string& layer);
/// Returns how idle each expert was in this step, in [0, 1]. Its pseudo-gradient is multiplied by this share (R10,
/// R17). \return [L, E] float64
at::Tensor idle_share_LE(PgActivity activity, std::span<const nn::RoutingByLayer> micro_batches,
                         std::span<const std::string> layers);
/// Returns the gradients of all trained tensors. Undefined gradients are omitted.
std::vector<at::Tensor> gradients_of(const LocalSetup& setup);
/// Returns, for each expert, true if the absolute value of an element is above `bound`.
/// \return [E] bool
at::Tensor any_above_E(std::span<const at::Tensor> g, double bound);

/// Computes pseudo-gradients on the server and applies them on the client.
class PseudoGradients {
 public:
  explicit PseudoGradients(const Options& options) : options_(options) {}

  // --- server ---

  /// Computes Gt = (Theta - Theta') / divisor (R15) for every expert tensor Theta of `old` and Theta' of `next`, and
  /// stores it in next.global.extras. It also stores the norm over the tensors of each expert, [E] per layer, in
  /// next.memory as "<layer>.pseudo_grad_norm".
  static void set(const lora::Sites& sites, const ServerState& old, ServerState& next, double divisor);

  /// Returns the Gt that set() stored, by site.
  static lora::AdapterState sent_in(const TensorMap& extras);

  // --- client ---

  /// Adds pseudo-gradients to the gradients, before the optimiser runs, if pg_apply = "adam_grad". Limits the norm of
  /// real and pseudo-gradients together if pg_clip_mode = "global_norm".
  void edit_gradients(const StepView& step) const;
  /// Adds pseudo-gradients to the parameters, after the optimiser step. Does nothing unless pg_apply = "decoupled_sgd".
  void edit_parameters(const StepView& step) const;

 private:
  using Target = std::function<at::Tensor(const at::Tensor& theta)>;

  void inject(const StepView& step, const Target& target, double factor) const;
  void limit_both(const StepView& step) const;
  Injection injection_of(const StepView& step, ExpertLayers& layers) const;
  double rho(double reference, int64_t top_k) const;
  at::Tensor clip_limit_L1(const StepView& step, const ExpertLayers& layers, const at::Tensor& share_LE) const;
  void report(Metrics& metrics, const Injection& injection, const at::Tensor& norm_LE) const;
  double scale(const StepView& step) const;

  Options options_;
};

}  // namespace evenkeel::methods::ubsmoe
