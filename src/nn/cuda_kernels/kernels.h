/// \file  Decides which CUDA kernels compute in this process. Like LibTorch's deterministic algorithms they are a
/// setting of the process, which is made before the first forward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "nn/cuda_kernels/driver.h"
#include "nn/cuda_kernels/kernel_names.h"

namespace evenkeel::nn::cuda {

/// Returns why this process cannot run the kernels on `device`, and what to do, in one line; empty if it can. The
/// kernels are compiled and loaded once per device, from the cache of compiled kernels if they are there. Thread-safe.
std::string why_no_kernels(c10::Device device);

/// Computes with `kernels` on `device` from now on, and with LibTorch's operators instead of the others. Not
/// thread-safe. \throws kConfig as why_no_kernels() says
void use_kernels(c10::Device device, KernelSet kernels);

/// Returns the device on which a kernel computes with `x`; null: operators compute. A kernel computes with float32 and
/// bfloat16 on a GPU, where use_kernels() has named it.
const DriverDevice* device_for(Kernel kernel, const at::Tensor& x);

/// Returns the device on which a kernel computes with the numbers of `index`, which is int64; null: operators compute.
const DriverDevice* device_for_indices(Kernel kernel, const at::Tensor& index);

/// Starts one of the variants that EVENKEEL_KERNEL of common.cuh makes of a kernel. \param type  of the values
/// \param wide  true if all rows of the arguments can be read in pieces of 16 bytes (can_be_wide())
template <typename Arguments>
void launch(const DriverDevice& device, const std::string& name, at::ScalarType type, bool wide,
            const LaunchShape& shape, const Arguments& arguments) {
  device.launch(name + (type == at::kFloat ? "_f32" : "_bf16") + (wide ? "_wide" : ""), shape, &arguments);
}

/// Returns whether rows of `width` values begin at multiples of 16 bytes in each of these tensors. Undefined tensors
/// are left out; other tensors have values of the type `type` or wider.
bool can_be_wide(int64_t width, at::ScalarType type, std::initializer_list<const at::Tensor*> tensors);

/// Returns the address of a tensor's values, or null for an undefined one.
template <typename T>
T* address(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

}  // namespace evenkeel::nn::cuda
