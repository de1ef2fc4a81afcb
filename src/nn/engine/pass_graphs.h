/// \file  Declares passes that are recorded once and replayed, so that a GPU computes the layers of a training step,
/// or of a step of generation, without a start of each operator by the host (docs/gpu.md). Dimension names: R rows, D
/// width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "nn/engine/pass.h"

namespace evenkeel::nn {

/// A forward pass of a training step, or of sequences in a cache. Borrows everything.
struct GraphedPass {
  /// Training: the batch has a last sequence of padding (data::padded()), and `factors` is null. A pass over a cache
  /// is recorded only if it has `factors`, which the recording keeps.
  const PassInput& input;
  /// Everything beside the sizes of the batch that the operators of the pass depend on: addresses and sizes of the
  /// factors, of their gradients and of router options, and numbers. Two passes with the same key differ in the values
  /// of their tensors alone.
  const std::vector<int64_t>& key;
  /// Converts the factors (Engine::prepare()).
  const std::function<std::shared_ptr<const PreparedFactors>()>& factors;
  /// Computes the final hidden states [R, D] with the layers of a pass.
  const std::function<at::Tensor(Pass& pass)>& layers;
};

/// What was done with the passes so far.
struct PassGraphCounts {
  int64_t recorded = 0, replayed = 0, eager = 0;  ///< eager: operator by operator
};

/// Recorded passes of one model. A pass of new sizes or with a new key is computed operator by operator, which also
/// loads what its operators need. The second is recorded, and replayed from then on: one graph for the forward pass,
/// and one for the backward pass, which adds to the gradients in place. Only the passes that were used last are kept.
/// If a recording fails, which is logged, nothing is recorded any more.
/// Of passes over a cache, those are recorded that extend each sequence of KvCache::places() by one token. Their batch
/// is padded here, to a power of two of sequences, with tokens in places that are free. Others are computed operator by
/// operator.
/// All ways give the same bits. For one thread.
class PassGraphs {
 public:
  PassGraphs() = default;
  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;
  virtual ~PassGraphs() = default;

  /// Computes a pass, and records its routing (PassInput::routing). The result and the router logits hold until the
  /// next call: their backward pass must be complete before it.
  /// \return [R, D]
  virtual at::Tensor run(const GraphedPass& pass) = 0;
  /// Returns memory for caches with places, whose addresses recordings keep. Only one such cache may be in use. A
  /// training step gives the memory back, and ends the recordings of passes over a cache.
  virtual KvArena& arena() = 0;
  virtual PassGraphCounts counts() const = 0;
};

}  // namespace evenkeel::nn
