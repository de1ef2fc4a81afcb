// The CUDA driver of simulated GPUs (tests/gpu), which runs the emulated kernels in their memory, and a compiler that
// gives what this driver takes. With LD_PRELOAD the program finds the library as libcuda.so.1; EVENKEEL_NVRTC names its
// folder, where it is libnvrtc.so.13 too.
#include <cstring>
#include <exception>
#include <iostream>
#include <mutex>
#include <vector>

#include "../gpu/device_memory.h"
#include "emulation.h"

namespace evenkeel::simulated_gpu {
namespace {

constexpr int kOk = 0, kInvalidValue = 1, kInvalidImage = 200, kNotFound = 500, kLaunchFailed = 719;
constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR

thread_local void* current_context = nullptr;

bool is_of_gpu(const void* address) {
  for (c10::DeviceIndex i = 0; i < device_count(); ++i)
    if (memory_of(i).contains(address)) return true;
  return false;
}

/// Copies the arguments of a kernel, with addresses that can be accessed.
std::vector<const char*> on_host(const void* arguments, size_t bytes) {
  std::vector<const char*> words((bytes + sizeof(void*) - 1) / sizeof(void*));
  std::memcpy(words.data(), arguments, bytes);
  for (auto& word : words)
    if (is_of_gpu(word)) word = static_cast<const char*>(accessible(word));
  return words;
}

int run(const emulation::Entry& kernel, unsigned blocks, unsigned threads, const void* arguments) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  count({.operators = 1});
  try {
    emulation::run_kernel(kernel, on_host(arguments, kernel.argument_bytes).data(), blocks, threads,
                          emulation::Order::kForward);
    return kOk;
  } catch (const std::exception& error) {
    std::cerr << "simulated driver: " << error.what() << '\n';
    return kLaunchFailed;
  }
}

}  // namespace
}  // namespace evenkeel::simulated_gpu

namespace gpu = evenkeel::simulated_gpu;

extern "C" {

int cuInit(unsigned) { return gpu::kOk; }

int cuDeviceGet(int* device, int index) {
  *device = index;
  return index < gpu::device_count() ? gpu::kOk : gpu::kInvalidValue;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  if (attribute != gpu::kMajor && attribute != gpu::kMinor) return gpu::kInvalidValue;
  *value = attribute == gpu::kMajor ? 9 : 0;
  return gpu::kOk;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  static char contexts[64];
  *context = &contexts[device];
  return gpu::kOk;
}

int cuCtxGetCurrent(void** context) {
  *context = gpu::current_context;
  return gpu::kOk;
}

int cuCtxSetCurrent(void* context) {
  gpu::current_context = context;
  return gpu::kOk;
}

int cuModuleLoadData(void** module, const void* image) {
  *module = const_cast<void*>(image);
  return std::memcmp(image,
                     "\x7f"
                     "ELF",
                     4) == 0 &&
                 gpu::current_context != nullptr
             ? gpu::kOk
             : gpu::kInvalidImage;
}

int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = const_cast<evenkeel::emulation::Entry*>(evenkeel::emulation::find_kernel(name));
  return *function != nullptr ? gpu::kOk : gpu::kNotFound;
}

int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                   void*, void** parameters, void**) {
  if (gpu::current_context == nullptr || blocks == 0 || threads == 0 || threads > 1024) return gpu::kInvalidValue;
  return gpu::run(*static_cast<const evenkeel::emulation::Entry*>(function), blocks, threads, parameters[0]);
}

int nvrtcVersion(int* major, int* minor) {
  *major = 13, *minor = 0;
  return gpu::kOk;
}

int nvrtcCreateProgram(void** program, const char*, const char*, int, const char* const*, const char* const*) {
  static char only;
  *program = &only;
  return gpu::kOk;
}

int nvrtcCompileProgram(void*, int, const char* const*) { return gpu::kOk; }

int nvrtcDestroyProgram(void**) { return gpu::kOk; }

int nvrtcGetProgramLogSize(void*, size_t* bytes) {
  *bytes = 0;
  return gpu::kOk;
}

int nvrtcGetProgramLog(void*, char*) { return gpu::kOk; }

int nvrtcGetCUBINSize(void*, size_t* bytes) {
  *bytes = 4;
  return gpu::kOk;
}

int nvrtcGetCUBIN(void*, char* bytes) {
  std::memcpy(bytes,
              "\x7f"
              "ELF",
              4);
  return gpu::kOk;
}

const char* nvrtcGetErrorString(int) { return "refused by the simulated compiler"; }

int cuGetErrorString(int, const char** text) {
  *text = "refused by the simulated driver";
  return gpu::kOk;
}

}  // extern "C"
