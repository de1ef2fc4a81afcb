/// \file  Selects the CUDA kernels of this process. Like LibTorch's deterministic mode the selection is global. Make it
/// before the first forward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/cuda_kernels/driver.h"
#include "nn/cuda_kernels/kernel_names.h"

namespace evenkeel::nn::cuda {

/// Returns why this process cannot run the kernels on `device`, and what to do, in one line; empty if it can. The first
/// call for a device loads the kernels, from the cache of compiled kernels or after compiling them. Thread-safe.
std::string why_no_kernels(c10::Device device);

/// Selects the groups of kernels that compute on `device` from now on; LibTorch's operators compute instead of the
/// others. Does nothing for the CPU. Not thread-safe. \throws kConfig as why_no_kernels() says
void use_kernels(c10::Device device, KernelSet kernels);

/// Returns the device for a kernel of the group on `x`; null: use LibTorch's operators. It is null unless `x` is
/// float32 or bfloat16, on a GPU for which use_kernels() selected the group.
const DriverDevice* device_for(Kernel kernel, const at::Tensor& x);

/// The same for an operand `index` of int64.
const DriverDevice* device_for_indices(Kernel kernel, const at::Tensor& index);

/// Starts the variant of a kernel for a type and a width of loads (EVENKEEL_KERNEL in source/common.cuh).
/// \param type  type of the values, float32 or bfloat16
/// \param wide  true if all rows of the arguments can be read in pieces of 16 bytes (can_be_wide())
template <typename Arguments>
void launch(const DriverDevice& device, const std::string& name, at::ScalarType type, bool wide,
            const LaunchShape& shape, const Arguments& arguments) {
  device.launch(name + (type == at::kFloat ? "_f32" : "_bf16") + (wide ? "_wide" : ""), shape, &arguments);
}

/// Returns whether rows of `width` values begin at multiples of 16 bytes in each of these tensors. Undefined tensors
/// are ignored. REQUIRES that the other tensors have values of `type` or wider.
bool can_be_wide(int64_t width, at::ScalarType type, std::initializer_list<const at::Tensor*> tensors);

/// Returns the address of a tensor's values, or null for an undefined one.
template <typename T>
T* address(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

}  // namespace evenkeel::nn::cuda
