/// \file  Where tensors lie and are computed: the processor, or a GPU behind LibTorch's accelerator interface. The one
/// file that knows of such a thing; it is compiled alike against wheels with CUDA and without.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace evenkeel {

/// Whether `text` is a device's name as configs and flags have it: "cpu", "auto", "cuda" or "cuda:N".
bool names_compute_device(std::string_view text);
/// Whether it asks for a GPU by name.
bool names_gpu(std::string_view text);

/// The device of that name. "auto" is the first GPU where there is one, else the processor; "cuda" is the GPU of this
/// process: the one of its rank on this machine where a launcher counts them, else the first.
/// \param key  what says so, for errors: "model.device"
/// \throws kConfig, one line, for any other name, and where there is no such GPU or this LibTorch knows of none.
c10::Device find_device(std::string_view name, std::string_view key);

/// "cpu", "cuda:0".
std::string device_text(c10::Device device);

/// Readies this process to compute on `device`: it becomes the current one, and products and reductions take the same
/// order every time: deterministic algorithms (an operator without one raises an error), no TF32, no reduced sums in
/// 16 bits. Nothing on the processor. Call it once, before the first tensor is there.
void settle_device(c10::Device device);

/// What cuBLAS must find in the environment when it is loaded: products of the same shape then have the same bits.
void settle_device_environment();

struct DeviceMemory {
  int64_t total = 0, free = 0;  ///< bytes of the device, and those that no process has
  int64_t peak = 0;             ///< the most that tensors of this process held since reset_peak()
};
/// All zero of the processor.
DeviceMemory device_memory(c10::Device device);
void reset_peak(c10::Device device);

/// What a GPU says of itself; what it does not say is empty.
struct DeviceIdentity {
  std::string name;          ///< "NVIDIA H100 80GB HBM3"
  std::string architecture;  ///< "9.0"
  std::string driver;        ///< "580.65.06"
  std::string runtime;       ///< of the CUDA libraries that LibTorch brings, "13.0"
};
DeviceIdentity device_identity(c10::Device device);

/// Returns when all that was given to the device is done. Nothing on the processor.
void synchronize(c10::Device device);
/// Gives memory that lies free in the allocator's pools back to the device.
void give_back_device_memory(c10::Device device);

/// One line about an error that means that the device's memory is full; empty for any other error.
std::string out_of_device_memory(const std::exception& error);

/// Copies tensors between devices, storage by storage: those that shared memory share it in the copy too, and what was
/// one tensor is one there, with the gradient it will have. Holds both sides for as long as it lives, so that an
/// address cannot be taken for another's. A copy of one begins with all that it knows. Threads: one.
class StorageCopies {
 public:
  /// A copy elsewhere of [N] uint8.
  using CopyBytes = std::function<at::Tensor(const at::Tensor& bytes_N)>;
  explicit StorageCopies(CopyBytes copy) : copy_(std::move(copy)) {}
  /// Copies to `device`; of what lies there already the tensors themselves.
  static StorageCopies to(c10::Device device);

  /// `tensor` elsewhere, with its sizes, strides and type, and without a graph; undefined where it is.
  at::Tensor operator()(const at::Tensor& tensor);

 private:
  struct Pair {
    at::Tensor from, to;  // of a storage: its bytes
  };
  CopyBytes copy_;
  std::map<const void*, Pair> storages_{}, tensors_{};  // by the address of what is copied
};

}  // namespace evenkeel
