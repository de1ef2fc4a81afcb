#include "nn/cuda_kernels/kernels.h"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/plain/cache_folder.h"
#include "base/plain/error.h"
#include "nn/cuda_kernels/cubin_cache.h"
#include "nn/cuda_kernels/nvrtc.h"

namespace evenkeel::nn::cuda {
namespace {

constexpr size_t kMostDevices = 64;
constexpr uintptr_t kWideBytes = 16;

/// The kernels of one GPU.
struct Loaded {
  std::once_flag once;
  std::unique_ptr<DriverDevice> device;  // null: `why_not` says why
  std::string why_not;
  KernelSet used;
};

Loaded& loaded(c10::Device device) {
  static std::array<Loaded, kMostDevices> all;
  return all.at(static_cast<size_t>(device.index()));
}

std::unique_ptr<DriverDevice> with_kernels(c10::Device device) {
  auto opened = std::make_unique<DriverDevice>(device);
  const Nvrtc compiler;
  const CubinKey key{sources_digest(), opened->architecture(), compiler.version()};
  opened->load(cached_cubin(cache_folder(), key, [&] { return compiler.compile(opened->architecture()); }));
  return opened;
}

void load_once(c10::Device device, Loaded& into) {
  std::call_once(into.once, [&] {
    try {
      into.device = with_kernels(device);
    } catch (const Error& error) {
      const std::string text = error.what();
      into.why_not = text.substr(text.find("] ") + 2);  // without the kind
    }
  });
}

}  // namespace

std::string why_no_kernels(c10::Device device) {
  if (device.is_cpu()) return "CUDA kernels compute on a GPU";
  auto& here = loaded(device);
  load_once(device, here);
  return here.why_not;
}

void use_kernels(c10::Device device, KernelSet kernels) {
  if (device.is_cpu()) return;
  if (!kernels.is_empty()) {
    const auto why_not = why_no_kernels(device);
    EK_CHECK(why_not.empty(), kConfig, "the CUDA kernels cannot compute: ", why_not);
  }
  loaded(device).used = kernels;
}

const DriverDevice* device_for(Kernel kernel, const at::Tensor& x) {
  const auto type = x.scalar_type();
  if (!x.is_cuda() || (type != at::kFloat && type != at::kBFloat16)) return nullptr;
  const auto& here = loaded(x.device());
  return here.used.has(kernel) ? here.device.get() : nullptr;
}

const DriverDevice* device_for_indices(Kernel kernel, const at::Tensor& index) {
  if (!index.is_cuda() || index.scalar_type() != at::kLong) return nullptr;
  const auto& here = loaded(index.device());
  return here.used.has(kernel) ? here.device.get() : nullptr;
}

bool can_be_wide(int64_t width, at::ScalarType type, std::initializer_list<const at::Tensor*> tensors) {
  if (width * static_cast<int64_t>(at::elementSize(type)) % static_cast<int64_t>(kWideBytes) != 0) return false;
  for (const auto* x : tensors)
    if (x->defined() && reinterpret_cast<uintptr_t>(x->data_ptr()) % kWideBytes != 0) return false;
  return true;
}

}  // namespace evenkeel::nn::cuda
