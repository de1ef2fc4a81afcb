/// \file  Keeps memory of a device for tensors that are replaced by others of the same sizes, so that recorded passes
/// (nn/engine/pass_graphs.h) find the new values at the same addresses.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "base/system/device.h"

namespace evenkeel::train {

/// Memory that is written again and again. Not thread-safe.
class KeptMemory {
 public:
  /// Returns an object that copies storages to this memory: the i-th that it copies goes where the i-th of the object
  /// before it lies, if both have the same length, and overwrites it. Otherwise new memory is allocated.
  /// \param known  what is copied already
  StorageCopies copies(const StorageCopies& known, c10::Device device);

 private:
  std::shared_ptr<std::vector<at::Tensor>> storages_ = std::make_shared<std::vector<at::Tensor>>();  // bytes, in order
};

}  // namespace evenkeel::train
