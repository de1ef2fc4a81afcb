/// \file  Reuses device memory for tensors that replace others of the same sizes, so that CUDA graphs
/// (nn/engine/pass_graphs.h) find the new values at the same addresses.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "base/system/device.h"

namespace evenkeel::train {

/// Memory of storages that are overwritten by later copies. Not thread-safe.
class KeptMemory {
 public:
  /// Returns an object that copies storages to this memory on `device`. The i-th storage that it copies overwrites the
  /// i-th storage that the previous object copied, if both have the same number of bytes and the same device. Otherwise
  /// new memory is allocated.
  /// \param known  remembers the tensors that are copied already; they are not copied again
  StorageCopies copies(const StorageCopies& known, c10::Device device);

 private:
  std::shared_ptr<std::vector<at::Tensor>> storages_ = std::make_shared<std::vector<at::Tensor>>();  // bytes, in order
};

}  // namespace evenkeel::train
