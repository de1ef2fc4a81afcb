/// \file  Declares CUDA graphs of forward and backward passes. The layers of a training step, or of a generation step,
/// are recorded once. A replay then starts all their operators at once, so that the host need not start each
/// (docs/gpu.md). Dimension names: R rows, D width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "nn/engine/pass.h"

namespace evenkeel::nn {

/// A forward pass of a training step, or of a generation step over a cache. Borrows all members.
struct GraphedPass {
  /// Training: the batch ends with a sequence of padding (data::padded()), and `input.factors` is null. A pass over a
  /// cache is recorded only if `input.factors` is set; the recording keeps these factors.
  const PassInput& input;
  /// All that the operators depend on except the sizes of the batch: numbers, and addresses and sizes of the factors,
  /// of their gradients and of the tensors in router options. Two passes with the same key and batch sizes differ only
  /// in the values of their tensors. Empty: the pass is not recorded.
  const std::vector<int64_t>& key;
  /// Returns the converted factors (Engine::prepare()).
  const std::function<std::shared_ptr<const PreparedFactors>()>& factors;
  /// Returns the final hidden states [R, D]. It calls the layers of `pass`.
  const std::function<at::Tensor(Pass& pass)>& layers;
};

/// Numbers of passes so far. The pass that is recorded is then replayed, and counts as both.
struct PassGraphCounts {
  int64_t recorded = 0, replayed = 0, eager = 0;  ///< eager: operator by operator
};

/// The CUDA graphs of one model. The first pass with given sizes and a given key runs operator by operator, which also
/// loads the libraries that its operators need. The second one is recorded, and it and all later ones are replayed. A
/// training pass has two graphs: the forward pass, and the backward pass, which adds to the gradients in place. Only
/// the most recently used recordings are kept. If a recording fails, a warning is logged and no pass is recorded any
/// more; a failure over a cache ends recording over caches only.
/// A pass over a cache is recorded only if each sequence has a place (KvCache::places()) and gets one token, and if the
/// pass has neither gradients, nor routing, nor PassInput::last_only. The batch is padded to a power of two of
/// sequences, or to the number of places if that is smaller, with tokens in free places.
/// Recorded and eager passes are bit-identical. Threads: one.
class PassGraphs {
 public:
  PassGraphs() = default;
  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;
  virtual ~PassGraphs() = default;

  /// Computes a pass and fills PassInput::routing. The next call overwrites the result and the router logits, so
  /// complete their backward pass first.
  /// \return [R, D]
  virtual at::Tensor run(const GraphedPass& pass) = 0;
  /// Returns the memory of caches with places. Recordings contain its addresses, so only one such cache may be in use
  /// at a time. A training step frees the recordings of passes over a cache, and this memory. It may be freed without
  /// them, by assigning an arena: only a cache at the recorded addresses replays a recording.
  virtual KvArena& arena() = 0;
  virtual PassGraphCounts counts() const = 0;
};

}  // namespace evenkeel::nn
