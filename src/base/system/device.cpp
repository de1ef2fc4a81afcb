#include "base/system/device.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/system/local_ranks.h"
#include "base/system/machine.h"

namespace evenkeel {
namespace {

constexpr std::string_view kGpu = "cuda";
constexpr int64_t kMaxDevices = 64;
constexpr int64_t kStagingBytes = int64_t{64} << 20;  // bytes of pinned memory; two buffers are used

std::optional<int64_t> device_number(std::string_view text) {
  const auto value = parse_number<int64_t>(text);
  return value && *value >= 0 && *value < kMaxDevices ? value : std::nullopt;
}

/// Parses N of "cuda:N".
std::optional<int64_t> index_in(std::string_view name) {
  const auto prefix = kGpu.size() + 1;
  return name.starts_with("cuda:") ? device_number(name.substr(prefix)) : std::nullopt;
}

c10::Device gpu(int64_t index) { return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)}; }

/// A C function of a shared library that a driver installs.
template <typename Function>
Function* function_of(void* library, const char* name) {
  return library != nullptr ? reinterpret_cast<Function*>(::dlsym(library, name)) : nullptr;
}

std::string driver_version() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  const auto begin = function_of<int()>(library, "nvmlInit_v2");
  const auto version = function_of<int(char*, unsigned)>(library, "nvmlSystemGetDriverVersion");
  std::array<char, 128> text{};
  if (begin == nullptr || version == nullptr || begin() != 0 || version(text.data(), text.size() - 1) != 0) return {};
  return text.data();
}

/// The GPU's number in the driver, which respects CUDA_VISIBLE_DEVICES as LibTorch does.
struct DriverDevice {
  void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  int device = -1;

  explicit DriverDevice(int index) {
    const auto begin = function_of<int(unsigned)>(library, "cuInit");
    const auto get = function_of<int(int*, int)>(library, "cuDeviceGet");
    if (begin == nullptr || get == nullptr || begin(0) != 0 || get(&device, index) != 0) device = -1;
  }
  std::string name() const {
    const auto get = function_of<int(char*, int, int)>(library, "cuDeviceGetName");
    std::array<char, 256> text{};
    return device >= 0 && get != nullptr && get(text.data(), static_cast<int>(text.size()) - 1, device) == 0
               ? text.data()
               : std::string();
  }
  std::string architecture() const {
    const auto get = function_of<int(int*, int, int)>(library, "cuDeviceGetAttribute");
    constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
    int major = 0, minor = 0;
    const bool known =
        device >= 0 && get != nullptr && get(&major, kMajor, device) == 0 && get(&minor, kMinor, device) == 0;
    return known ? concat(major, ".", minor) : std::string();
  }
};

at::Tensor bytes_of(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  return at::empty({0}, tensor.options().dtype(at::kByte).requires_grad(false))
      .set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
}

at::Tensor pinned(int64_t bytes) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
}

/// Copies in pieces through pinned memory, which the allocator caches. One piece is filled while the previous one is
/// transferred.
void copy_up(const at::Tensor& from_N, const at::Tensor& to_N) {
  for (int64_t begin = 0, n = from_N.numel(); begin < n; begin += kStagingBytes) {
    const int64_t length = std::min(kStagingBytes, n - begin);
    const auto piece = pinned(length);
    piece.copy_(from_N.narrow(0, begin, length));
    to_N.narrow(0, begin, length).copy_(piece, /*non_blocking=*/true);
  }
}

void copy_down(const at::Tensor& from_N, const at::Tensor& to_N) {
  const int64_t n = from_N.numel();
  const auto piece = pinned(std::min(kStagingBytes, n));
  for (int64_t begin = 0; begin < n; begin += kStagingBytes) {
    const int64_t length = std::min(kStagingBytes, n - begin);
    piece.narrow(0, 0, length).copy_(from_N.narrow(0, begin, length));
    to_N.narrow(0, begin, length).copy_(piece.narrow(0, 0, length));
  }
}

at::Tensor copy_of(const at::Tensor& bytes_N, c10::Device device) {
  if (bytes_N.device() == device) return bytes_N;
  auto copy_N = at::empty_like(bytes_N, bytes_N.options().device(device));
  copy_bytes(bytes_N, copy_N);
  return copy_N;
}

}  // namespace

bool names_gpu(std::string_view text) { return text == kGpu || index_in(text).has_value(); }
bool names_compute_device(std::string_view text) { return text == "cpu" || text == "auto" || names_gpu(text); }

int64_t gpu_count() {
  return at::accelerator::getAccelerator(false) == c10::DeviceType::CUDA ? at::accelerator::deviceCount() : 0;
}

c10::Device find_device(std::string_view name, std::string_view key) {
  EK_CHECK(names_compute_device(name), kConfig, key, " is \"", name, "\", allowed: cpu, cuda, cuda:0 and so on, auto");
  const bool is_gpu_name = names_gpu(name);
  if (name == "cpu" || (!is_gpu_name && gpu_count() == 0)) return c10::kCPU;
  const int64_t count = gpu_count(), index = index_in(name).value_or(local_rank());
  EK_CHECK(count > 0, kConfig, key, " is ", name, ", but ", why_no_gpu(), "; --device cpu computes without");
  EK_CHECK(index < count, kConfig, key, " is ", name, ", which is GPU ", index, " for this process, allowed: 0 .. ",
           count - 1, ", this machine's GPUs");
  return gpu(index);
}

std::string_view why_no_gpu() {
  return at::detail::getCUDAHooks().hasCUDART() ? "this machine shows none (is there a driver? see nvidia-smi)"
                                                : "this LibTorch is built for processors alone (see docs/gpu.md)";
}

std::string device_text(c10::Device device) { return device.str(); }

void settle_device(c10::Device device) {
  if (device.is_cpu()) return;
  auto& context = at::globalContext();
  context.lazyInitDevice(device.type());
  at::accelerator::setDeviceIndex(device.index());
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowBF16ReductionCuBLAS(false, true);
}

void settle_device_environment() { ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0); }

DeviceMemory device_memory(c10::Device device) {
  if (device.is_cpu()) return {};
  at::globalContext().lazyInitDevice(device.type());
  const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
  const auto stats = at::accelerator::getDeviceStats(device.index());
  const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return {static_cast<int64_t>(total), static_cast<int64_t>(free), stats.allocated_bytes.at(all).peak};
}

void reset_peak(c10::Device device) {
  if (!device.is_cpu()) at::accelerator::resetPeakStats(device.index());
}

DeviceIdentity device_identity(c10::Device device) {
  if (device.is_cpu()) return {};
  const DriverDevice driver(device.index());
  const auto runtime = at::detail::getCUDAHooks().versionCUDART();
  return {.name = driver.name(),
          .architecture = driver.architecture(),
          .driver = driver_version(),
          .runtime = concat(runtime / 1000, ".", runtime % 1000 / 10)};
}

void synchronize(c10::Device device) {
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
}

void give_back_device_memory(c10::Device device) {
  if (!device.is_cpu()) at::accelerator::emptyCache();
}

std::string device_memory_message(const std::exception& error) {
  const auto* full = dynamic_cast<const c10::OutOfMemoryError*>(&error);
  const std::string text = full != nullptr ? full->what_without_backtrace() : error.what();
  if (full == nullptr && text.find("CUDA error: out of memory") == text.npos) return {};
  const auto sentence = text.substr(0, text.find(". GPU"));
  return concat("the device's memory is full: ", sentence.substr(0, sentence.find('\n')),
                "; train.batch_size, train.merge_tokens, evaluate.batch_size and lora.rank make it less");
}

void copy_bytes(const at::Tensor& from_N, const at::Tensor& to_N) {
  if (from_N.numel() == 0) return;
  if (from_N.device() == to_N.device())
    to_N.copy_(from_N);
  else
    to_N.is_cpu() ? copy_down(from_N, to_N) : copy_up(from_N, to_N);
}

StorageCopies StorageCopies::with(CopyBytes copy) const {
  auto result = *this;
  result.copy_ = std::move(copy);
  return result;
}

StorageCopies StorageCopies::to(c10::Device device) {
  return StorageCopies([device](const at::Tensor& bytes_N) { return copy_of(bytes_N, device); });
}

at::Tensor StorageCopies::operator()(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  auto& known = tensors_[tensor.unsafeGetTensorImpl()];
  if (known.to.defined()) return known.to;
  auto& bytes = storages_[tensor.storage().unsafeGetStorageImpl()];
  if (!bytes.from.defined()) {
    auto from = bytes_of(tensor), to = copy_(from);  // both before either is stored, because copy_() may throw
    bytes = {std::move(from), std::move(to)};
  }
  known.from = tensor;
  known.to = at::empty({0}, bytes.to.options().dtype(tensor.scalar_type()))
                 .set_(bytes.to.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
  return known.to;
}

}  // namespace evenkeel
