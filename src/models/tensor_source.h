/// \file  The interface through which a model under construction gets its tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "nn/compute/compute.h"
#include "nn/dense/frozen_weight.h"

namespace evenkeel {

/// Where a model under construction takes its tensors from: a folder, or random draws.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// The tensor `name` of `sizes`. \throws kCheckpoint when it is missing, has another shape or is no floating type.
  virtual at::Tensor take(const std::string& name, at::IntArrayRef sizes) = 0;
  /// The same, of a matrix that tokens are multiplied with: in the format that the source stores those in.
  virtual FrozenWeight take_weight(const std::string& name, at::IntArrayRef sizes) { return take(name, sizes); }
  virtual bool has(const std::string& name) const = 0;
  /// Leaves aside every tensor whose name begins with `prefix`: heads, layers that are not run.
  virtual void leave(std::string_view prefix) = 0;
  /// Who will compute with them; kAten: experts belong into stacks.
  virtual Engine engine() const { return Engine::kKernels; }
  /// Call when all are taken. \throws kCheckpoint naming the first tensor nobody took or left.
  virtual void finish() = 0;
};

}  // namespace evenkeel
