// Registers the simulated GPUs as LibTorch's CUDA devices: their allocator, the current device and stream of a thread,
// and pinned memory. A program gets them with LD_PRELOAD; it needs a LibTorch without CUDA.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "device_memory.h"
#include "recorder.h"
#include "transfers.h"

namespace evenkeel::simulated_gpu {
namespace {

thread_local c10::DeviceIndex chosen = 0;  // device of the thread

c10::Device device(c10::DeviceIndex index) { return {c10::DeviceType::CUDA, index}; }

void free_on_device(void* address) {
  if (free_of_recording(address)) return;
  for (c10::DeviceIndex i = 0; i < device_count(); ++i)
    if (memory_of(i).contains(address)) memory_of(i).free(address);
}

struct GpuAllocator : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* address = is_recorded() ? allocate_for_recording(bytes) : memory_of(chosen).allocate(bytes);
    return {address, address, &free_on_device, device(chosen)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_on_device; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(accessible(to), accessible(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto& all = stats.allocated_bytes.at(static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE));
    all.current = static_cast<int64_t>(memory_of(index).used());
    all.peak = static_cast<int64_t>(memory_of(index).peak());
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex index) override { memory_of(index).reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const auto& memory = memory_of(index);
    return {memory.total() - memory.used(), memory.total()};
  }
};

// Pinned memory is ordinary memory of the processor that is known by its address.
struct PinnedAllocator : c10::Allocator {
  struct Ranges {
    std::mutex mutex{};
    std::map<const char*, size_t> bytes{};
  };
  static Ranges& ranges() {
    static auto* all = new Ranges();  // never destroyed: tensors may outlive it
    return *all;
  }
  static bool contains(const void* address) {
    const auto* byte = static_cast<const char*>(address);
    const std::lock_guard lock(ranges().mutex);
    const auto next = ranges().bytes.upper_bound(byte);
    return next != ranges().bytes.begin() && byte < std::prev(next)->first + std::prev(next)->second;
  }
  static void free_pinned(void* address) {
    const std::lock_guard lock(ranges().mutex);
    ranges().bytes.erase(static_cast<const char*>(address));
    std::free(address);
  }
  c10::DataPtr allocate(size_t bytes) override {
    auto* address = static_cast<char*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
    TORCH_CHECK(address != nullptr, "simulated GPU: no pinned memory");
    const std::lock_guard lock(ranges().mutex);
    ranges().bytes[address] = bytes;
    return {address, address, &free_pinned, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

GpuAllocator gpu_allocator;
PinnedAllocator pinned_allocator;
const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::CUDA, &gpu_allocator);
  return true;
}();

struct GpuGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device to) const override {
    return device(std::exchange(chosen, to.has_index() ? to.index() : chosen));
  }
  c10::Device getDevice() const override { return device(chosen); }
  void setDevice(c10::Device to) const override { exchangeDevice(to); }
  void uncheckedSetDevice(c10::Device to) const noexcept override { exchangeDevice(to); }
  c10::Stream getStream(c10::Device of) const override { return stream(current_stream(), of); }
  c10::Stream getDefaultStream(c10::Device of) const override { return c10::Stream(c10::Stream::DEFAULT, of); }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override { return stream(1, of); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream(exchange_stream(next.id()), next.device());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { wait(); }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override { *event = &chosen; }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { wait(); }
  void synchronizeDevice(c10::DeviceIndex) const override { wait(); }

 private:
  static c10::Stream stream(c10::StreamId id, c10::Device of) { return c10::Stream(c10::Stream::UNSAFE, of, id); }
};
C10_REGISTER_GUARD_IMPL(CUDA, GpuGuard);

struct GpuHooks : at::CUDAHooksInterface {
  explicit GpuHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  long versionCUDART() const override { return 13000; }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  int getNumGPUs() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { chosen = index; }
  c10::DeviceIndex getCurrentDevice() const override { return chosen; }
  c10::DeviceIndex current_device() const override { return chosen; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return std::exchange(chosen, index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {  // seeded by at::manual_seed()
    static const at::Generator one = at::detail::createCPUGenerator();
    return one;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  bool isPinnedPtr(const void* address) const override { return PinnedAllocator::contains(address); }
};
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, GpuHooks)

}  // namespace

c10::DeviceIndex current_device() { return chosen; }

}  // namespace evenkeel::simulated_gpu
