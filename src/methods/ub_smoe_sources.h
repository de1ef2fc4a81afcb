/// \file  Selects what UB-SMoE injects into experts (pg_source): the paper's pseudo-gradient of the expert itself, or
/// one of three controls, with which a study finds out what makes a pseudo-gradient useful. The injected term of an
/// expert always has the norm of the expert's own Gt over its tensors, so all sources are scaled and clipped alike.
///
///   own        Gt_i, for idle experts
///   placebo    Gt_j |Gt_i| / |Gt_j| with j the next idle expert of the layer: another expert's direction
///   momentum   Gt_i, for all experts of the layer, idle or not, with the mean of their idle shares
///   oracle     g_i |Gt_i| / |g_i| with g the client's gradient of the step at the checkpoint's K: the true direction
///
/// Private to UB-SMoE. Dimension names: L layers, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "methods/protocol.h"
#include "methods/ub_smoe_options.h"

namespace evenkeel::methods::ubsmoe {

/// The layers with adapted experts. The terms of a layer are what is injected into its experts' adapter tensors,
/// [E, r, in] and [E, out, r], at first the pseudo-gradients Gt.
struct ExpertLayers {
  std::vector<std::string> names;
  std::vector<nn::ExpertTerms> tensors;  ///< one entry per name
};

/// Returns for each expert the index of the next idle expert of its layer, cyclically, or its own index if no other
/// expert is idle. Does not wait for a GPU.
/// \param idle_LE  bool \return [L, E] int64
at::Tensor next_idle_LE(const at::Tensor& idle_LE);

/// Replaces the terms of `layers` by the terms of `source`.
/// \param step      for the oracle: step.reference holds the gradients
/// \param share_LE  how idle each expert was, in [0, 1]
/// \param norm_LE   norms of the experts' own Gt
/// \return [L, E] float64: the share of its term that each expert gets. It is 0 if the source has no term: placebo
/// without another idle expert or with Gt_j = 0, oracle with g_i = 0
at::Tensor take_source(PgSource source, const StepView& step, const at::Tensor& share_LE, const at::Tensor& norm_LE,
                       ExpertLayers& layers);

}  // namespace evenkeel::methods::ubsmoe
