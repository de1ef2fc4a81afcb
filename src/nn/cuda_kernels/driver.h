/// \file  Loads compiled kernels into a GPU and launches them, with the functions of the CUDA driver (libcuda).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace evenkeel::nn::cuda {

/// The grid and the block of a launch, one-dimensional.
struct LaunchShape {
  int64_t blocks = 0;
  unsigned threads = 128;  ///< per block, a multiple of 32
};

/// One GPU, used through the CUDA driver. Threads: any for launch(); one for load().
class DriverDevice {
 public:
  /// Opens libcuda and the context that LibTorch uses. \throws kConfig when there is no driver or no such GPU
  explicit DriverDevice(c10::Device device);
  ~DriverDevice();
  DriverDevice(const DriverDevice&) = delete;
  DriverDevice& operator=(const DriverDevice&) = delete;

  /// Returns the architecture of the GPU in the form that NVRTC takes, e.g. "sm_90".
  const std::string& architecture() const { return architecture_; }
  /// Loads compiled kernels. \throws kConfig when the driver refuses them
  void load(const std::string& cubin);
  /// Starts a kernel on the current stream of the device. Does nothing if `shape` has 0 blocks. REQUIRES load().
  /// \param arguments  the struct that the kernel takes, which is copied \throws kInternal naming the kernel
  void launch(const std::string& kernel, const LaunchShape& shape, const void* arguments) const;

 private:
  struct Functions;

  void* function_of(const std::string& kernel) const;
  void use_context() const;

  std::unique_ptr<const Functions> functions_;
  c10::Device device_;
  std::string architecture_;
  void *context_ = nullptr, *module_ = nullptr;
  mutable std::mutex mutex_{};
  mutable std::map<std::string, void*> kernels_{};
};

}  // namespace evenkeel::nn::cuda
