/// \file  Memory of simulated GPUs. LibTorch's CUDA device is played by the processor, so that code for a GPU can be
/// tested without one. Host code that reads or writes a tensor of such a device ends the process, as it would on a
/// machine with a GPU.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace evenkeel::simulated_gpu {

/// The number of simulated GPUs: EVENKEEL_SIMULATED_GPUS, by default 1.
c10::DeviceIndex device_count();

/// The memory of one simulated GPU: EVENKEEL_SIMULATED_GPU_MIB, by default 4,096 MiB. Each byte has two addresses. The
/// one in tensors cannot be accessed. The other is for the code that plays the GPU. Thread-safe.
class DeviceMemory {
 public:
  /// \throws std::runtime_error when the machine refuses the mapping.
  explicit DeviceMemory(c10::DeviceIndex index);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Returns the address of `bytes` new bytes, aligned to 512. They hold ones: a number in them is not a number.
  /// \throws c10::OutOfMemoryError as LibTorch does on a GPU.
  void* allocate(size_t bytes);
  void free(void* address);

  bool contains(const void* address) const;
  /// Returns the accessible address of the same byte.
  void* accessible(const void* address) const;

  /// Returns the bytes of all memory in use by offset, but for blocks that are left out.
  std::map<size_t, std::vector<char>> contents(const std::function<bool(void* address)>& leaves_out) const;
  /// Writes contents() back where the memory is still in use.
  void restore(const std::map<size_t, std::vector<char>>& contents);

  size_t total() const { return bytes_; }
  size_t used() const;
  size_t peak() const;
  void reset_peak();

 private:
  c10::DeviceIndex index_;
  size_t bytes_;
  char *addresses_ = nullptr, *accessible_ = nullptr;
  mutable std::mutex mutex_{};
  std::map<size_t, size_t> unused_{}, in_use_{};  // offset: bytes
  size_t used_ = 0, peak_ = 0;
};

/// Returns the memory of device `index`.
DeviceMemory& memory_of(c10::DeviceIndex index);

/// Returns the accessible address of a byte of any simulated GPU.
void* accessible(const void* address);

/// What the program asked of the simulated GPUs.
struct Counts {
  int64_t operators = 0;  ///< operators that a GPU would compute
  int64_t waits = 0;      ///< times the host waited for a GPU
  int64_t bytes_up = 0, bytes_down = 0;
  int64_t peak = 0;  ///< most bytes in use of one GPU
};
/// Adds to the counts of this process, and takes the larger peak. EVENKEEL_SIMULATED_GPU_COUNTS names a file of five
/// 64-bit integers that holds them, for all processes that have it together. Thread-safe.
void count(const Counts& more);

}  // namespace evenkeel::simulated_gpu
