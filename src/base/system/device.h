/// \file  Selects and describes the compute device: the CPU or a GPU, through LibTorch's accelerator interface. No
/// other file uses that interface. The file compiles with a LibTorch with or without CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace evenkeel {

/// Returns true when `text` is a device name of configs and flags: "cpu", "auto", "cuda" or "cuda:N".
bool names_compute_device(std::string_view text);
/// Returns true for "cuda" and "cuda:N".
bool names_gpu(std::string_view text);

/// Returns the number of GPUs that this process can use; 0 when LibTorch was built without CUDA.
int64_t gpu_count();

/// Returns the device with this name. "cuda" is the GPU whose index is the local rank of this process if a launcher
/// sets one, otherwise the first GPU. "auto" is the same GPU if there is a GPU, otherwise the CPU.
/// \param key  the setting that holds the name, for errors, e.g. "model.device"
/// \throws kConfig for any other name, for a GPU that does not exist, and when LibTorch was built without CUDA.
c10::Device find_device(std::string_view name, std::string_view key);

/// Returns the reason why there is no GPU to compute on: a LibTorch without CUDA, or no driver. REQUIRES gpu_count() ==
/// 0.
std::string_view why_no_gpu();

/// Returns the name of a device, e.g. "cpu" or "cuda:0".
std::string device_text(c10::Device device);

/// Prepares this process to compute on `device`. A GPU becomes the current device, and its results become reproducible:
/// deterministic algorithms (an operator without one raises an error), no TF32 (products in float32 with 10 bits of
/// mantissa), no bfloat16 reductions in cuBLAS. Does nothing for the CPU. Call it once, before the first tensor is
/// created. Settings of LibTorch are per process.
void settle_device(c10::Device device);

/// Sets CUBLAS_WORKSPACE_CONFIG unless the environment has it, so that products of the same shape give the same bits.
/// Call it before cuBLAS is loaded.
void settle_device_environment();

/// The memory use of a device.
struct DeviceMemory {
  int64_t total = 0, free = 0;  ///< bytes of the device; bytes that no process uses
  int64_t peak = 0;             ///< most bytes in tensors of this process since reset_peak()
};
/// Returns the memory use of a device; all zero for the CPU.
DeviceMemory device_memory(c10::Device device);
/// Restarts the measurement of DeviceMemory::peak. Does nothing for the CPU.
void reset_peak(c10::Device device);

/// Describes a GPU. Fields that the driver does not report are empty.
struct DeviceIdentity {
  std::string name;          ///< "NVIDIA H100 80GB HBM3"
  std::string architecture;  ///< "9.0"
  std::string driver;        ///< "580.65.06"
  std::string runtime;       ///< version of LibTorch's CUDA libraries, "13.0"
};
/// Returns the description of a GPU; all empty for the CPU.
DeviceIdentity device_identity(c10::Device device);

/// Waits until all work on the device is done. Does nothing for the CPU.
void synchronize(c10::Device device);
/// Returns unused memory in the allocator's pools to the device.
void give_back_device_memory(c10::Device device);

/// Returns one line for a message when `error` means that the device's memory is full, otherwise an empty string.
std::string device_memory_message(const std::exception& error);

/// Copies bytes [N] between devices. A copy to a GPU may return before it is complete.
void copy_bytes(const at::Tensor& from_N, const at::Tensor& to_N);

/// Copies tensors between devices, one storage at a time. Tensors that share memory share it in the copy too, and
/// copying the same tensor twice returns the same copy. The object keeps sources and copies alive, so that an address
/// is not reused. A copied StorageCopies remembers all tensors that the original has copied. Not thread-safe.
class StorageCopies {
 public:
  /// Copies the bytes of a storage, [N] uint8.
  using CopyBytes = std::function<at::Tensor(const at::Tensor& bytes_N)>;
  explicit StorageCopies(CopyBytes copy) : copy_(std::move(copy)) {}
  /// Returns an object that copies to `device`. A tensor that is already on `device` is not copied: the result shares
  /// its memory.
  static StorageCopies to(c10::Device device);

  /// Returns an object that remembers the same copies, and makes new ones with `copy`.
  StorageCopies with(CopyBytes copy) const;

  /// Returns the copy of `tensor` with the same sizes, strides and dtype and without an autograd graph. An undefined
  /// tensor gives an undefined one.
  at::Tensor operator()(const at::Tensor& tensor);

 private:
  struct Pair {
    at::Tensor from, to;  // a tensor; for a storage, its bytes
  };
  CopyBytes copy_;
  std::map<const void*, Pair> storages_{}, tensors_{};  // by the address of the source
};

}  // namespace evenkeel
