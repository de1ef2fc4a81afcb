/// \file  Records the layers of a decoder as two CUDA graphs: the forward pass and the backward pass. Dimension names:
/// R rows, D width, T tokens, L layers, E experts, K selected.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/system/device_graph.h"
#include "nn/aten_engine/layout.h"
#include "nn/engine/pass_graphs.h"

namespace evenkeel::nn::aten {

/// A recorded training pass. Its tensors keep their addresses: a replay reads a batch from the layout, and writes
/// hidden states, router logits and selected experts. The backward pass reads the gradients of hidden states and router
/// logits, and adds to the gradients of the leaves in place.
class RecordedStack {
 public:
  /// Records both passes and computes neither. \param layout  of the batch
  /// \throws c10::Error if an operator cannot be recorded; Error{kInternal} if nothing is trained
  RecordedStack(const GraphedPass& pass, const Layout& layout, const std::shared_ptr<SharedGraphPool>& pool);

  /// Starts the forward pass of a batch of the recorded sizes.
  /// \return hidden states [R, D], then the router logits [T, E] of each of `logit_layers()`; they share the memory of
  /// this object
  std::vector<at::Tensor> forward(const Layout& layout);
  /// Starts the backward pass of the last forward().
  /// \param grads  gradients of the results of forward(); undefined: zero
  void backward(const std::vector<at::Tensor>& grads);

  /// Returns the routing keys of the layers with router logits, which forward() returns in this order.
  const std::vector<std::string>& logit_layers() const { return logit_layers_; }
  /// Returns the routing keys of all layers with experts, and the experts that they select: [L, R, K] int64.
  const std::vector<std::string>& layers() const { return layers_; }
  const at::Tensor& choices_LRK() const { return choices_LRK_; }
  /// Returns the layout that replays read.
  const Layout& layout() const { return layout_; }

 private:
  void record_forward(const GraphedPass& pass);
  void record_backward();

  Layout layout_;
  std::vector<at::Tensor> outputs_, grads_;  // as forward() returns them, and their gradients
  std::vector<bool> given_;                  // which gradients are not zero
  std::vector<std::string> logit_layers_, layers_;
  at::Tensor choices_LRK_;
  std::optional<DeviceGraph> forward_, backward_;
};

/// Replays the forward pass as one autograd node, which replays the backward pass.
/// \return as RecordedStack::forward()
std::vector<at::Tensor> run(const std::shared_ptr<RecordedStack>& stack, const Layout& layout);

}  // namespace evenkeel::nn::aten
