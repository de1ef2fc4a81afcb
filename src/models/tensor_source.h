/// \file  Defines the interface through which a model under construction gets its tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "nn/compute/compute.h"
#include "nn/dense/frozen_weight.h"

namespace evenkeel::models {

/// Gives a model under construction its tensors, from a folder, random draws or shapes.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Returns the tensor `name`, which must have shape `sizes`. Each tensor can be taken once.
  /// \throws kCheckpoint when it is missing, has another shape, is not of a floating type or has a value that is not
  /// finite
  virtual at::Tensor take(const std::string& name, at::IntArrayRef sizes) = 0;
  /// Returns the tensor in its stored type, even if the source converts other tensors. \throws as take()
  virtual at::Tensor take_stored(const std::string& name, at::IntArrayRef sizes) { return take(name, sizes); }
  /// Returns a weight of matrix products, in the format in which the source stores such weights. \throws as take()
  virtual nn::FrozenWeight take_weight(const std::string& name, at::IntArrayRef sizes) { return take(name, sizes); }
  /// Returns true if the tensor `name` exists and was not taken.
  virtual bool has(const std::string& name) const = 0;
  /// Discards every tensor whose name begins with `prefix`, for example of a layer that the model does not run.
  virtual void leave(std::string_view prefix) = 0;
  /// Returns the engine that will compute with the tensors. With kAten, the experts of a layer belong in one stack.
  virtual nn::EngineKind engine() const { return nn::EngineKind::kKernels; }
  /// Checks that every tensor was taken or discarded. Call it at the end.
  /// \throws kCheckpoint naming the first tensor that is left
  virtual void finish() = 0;
};

}  // namespace evenkeel::models
