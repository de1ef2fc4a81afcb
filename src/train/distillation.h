/// \file  Trains a model with few experts per token towards its own answers with more (K-dropout with
/// self-distillation). Slimmable networks do the same over widths, as "inplace distillation" (Yu and Huang 2019,
/// arXiv:1903.05134). Dimension names: N targets, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/random/random.h"
#include "methods/method.h"
#include "models/causal_lm.h"

namespace evenkeel::train {

/// Draws the number of experts per token of a client's second pass, K'. Draws are keyed by (seed, round, client).
class SmallerTopK {
 public:
  /// \param top_k  K_c, the client's own
  SmallerTopK(int64_t top_k, const methods::ClientView& view);
  /// Returns one of the powers of two below K_c, each with the same probability; 0 if there is none (K_c <= 1).
  int64_t draw();

 private:
  int64_t count_ = 0;  // of powers of two below K_c
  RandomStream stream_;
};

/// Final hidden states of the targets of a batch.
struct DistillationRows {
  at::Tensor teacher_ND;  ///< at K_c, without autograd
  at::Tensor student_ND;  ///< at K', differentiable
  at::Tensor weights_N;   ///< w_n of each target
};

/// Runs the backward pass of sum_n w_n tau^2 KL(p_n || q_n), where p and q are the softmax of the logits over tau of
/// teacher and student. Logits are computed in chunks of at most 2^24 values.
/// \return sum_n tau^2 KL(p_n || q_n) without weights, a scalar without autograd
at::Tensor backward_of_divergence(const models::CausalLm& model, const models::ForwardOptions& options,
                                  const DistillationRows& rows, double temperature);

}  // namespace evenkeel::train
