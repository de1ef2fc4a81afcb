/// \file  Declares what an engine computes: the passes of a decoder, the layers of an encoder and the head. Each engine
/// is a folder that implements this class; engine_of() returns it (nn/engines/engine_of.h).
/// Dimension names: R rows of hidden states, N selected rows, D hidden, V vocabulary, I in, O out, T tokens, H heads, P
/// head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "nn/dense/loss.h"
#include "nn/engine/pass.h"
#include "nn/engine/pass_graphs.h"
#include "nn/engine/step_arithmetic.h"

namespace evenkeel::nn {

/// An implementation of the layers of a model. An engine has no state: settings come with each call. Threads: any.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  // --- how a model stores its weights

  /// Returns true if the engine multiplies weights with the same input as one matrix. Models then store the experts of
  /// a layer as stacks (ExpertWeights), and may store queries, keys and values as one.
  virtual bool stacks_weights() const = 0;
  /// Returns the weight of a norm or a router in the type in which the engine reads it.
  virtual at::Tensor wide_weight(const at::Tensor& stored) const = 0;

  // --- decoders

  /// Converts the LoRA factors of a model once for several passes. The result is valid until a factor changes. \return
  /// null if the engine needs no conversion
  virtual std::shared_ptr<const PreparedFactors> prepare(const ModelFactors& factors, const Compute& compute) const = 0;
  /// Begins the pass of a batch.
  virtual std::unique_ptr<Pass> begin(const PassInput& input) const = 0;
  /// Returns an object that records passes of one model as CUDA graphs; null if the engine cannot record.
  virtual std::unique_ptr<PassGraphs> graphs() const { return nullptr; }

  // --- encoders

  /// Computes x W^T. \return [N, O], in the type of x or, on engine aten, in Compute::inner unless that is kFloat
  /// \throws kShape if sizes disagree; kConfig if the engine does not support int8 weights
  virtual at::Tensor linear(const at::Tensor& x_NI, const FrozenWeight& w, const Compute& compute) const = 0;
  /// Computes nn::full_attention() with as many sequences at once as the engine allows.
  virtual at::Tensor full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                                    std::span<const int64_t> offsets) const = 0;

  // --- head

  /// Returns the rows `rows_N` of hidden states. Gradients are summed in the order of the rows.
  /// \param rows_N  int64, on the CPU \return [N, D]
  virtual at::Tensor rows(const at::Tensor& hidden_RD, const at::Tensor& rows_N) const = 0;
  /// Computes nn::logits().
  virtual at::Tensor logits(const at::Tensor& hidden_ND, const FrozenWeight& head, const Compute& compute,
                            double soft_cap) const = 0;
  /// Computes nn::cross_entropies().
  virtual std::vector<LossSum> cross_entropies(const at::Tensor& hidden_ND, const FrozenWeight& head,
                                               const at::Tensor& targets_N, std::span<const int64_t> counts,
                                               const Compute& compute, double soft_cap) const = 0;
  /// Computes nn::target_logprobs().
  virtual at::Tensor target_logprobs(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                                     const Compute& compute, double soft_cap) const = 0;

  /// Returns the tensor operations of an optimiser step.
  virtual const StepArithmetic& step() const = 0;
};

}  // namespace evenkeel::nn
