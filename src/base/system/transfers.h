/// \file  Copies small tensors between the host and a device without waiting for other work of the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace c10 {
struct Event;
}

namespace evenkeel {

/// Returns the numbers as a tensor [N] int64 on `device`. The host does not wait for the copy.
at::Tensor uploaded(std::span<const int64_t> values, c10::Device device);

/// Copies tensors to the host. The copies begin with the construction, and wait() returns when they are complete: work
/// that the device gets in between is not waited for. Not thread-safe.
class Download {
 public:
  /// \param tensors  on one device, or all on the CPU, where nothing is copied
  explicit Download(std::vector<at::Tensor> tensors);
  /// Waits for the copies. \return the tensors on the CPU, in their order
  const std::vector<at::Tensor>& wait();

 private:
  std::vector<at::Tensor> tensors_;
  std::shared_ptr<c10::Event> done_;  // null: nothing to wait for
};

}  // namespace evenkeel
