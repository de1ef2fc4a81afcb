#include "nn/cuda_kernels/driver.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <limits>
#include <string_view>

#include "base/plain/error.h"
#include "nn/cuda_kernels/library.h"

namespace evenkeel::nn::cuda {
namespace {

constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR

}  // namespace

struct DriverDevice::Functions {
  using Launch = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                     void**);

  explicit Functions(const Library& library)
      : begin(library.function<int(unsigned)>("cuInit")),
        device(library.function<int(int*, int)>("cuDeviceGet")),
        attribute(library.function<int(int*, int, int)>("cuDeviceGetAttribute")),
        retain(library.function<int(void**, int)>("cuDevicePrimaryCtxRetain")),
        current(library.function<int(void**)>("cuCtxGetCurrent")),
        set_current(library.function<int(void*)>("cuCtxSetCurrent")),
        load(library.function<int(void**, const void*)>("cuModuleLoadData")),
        find(library.function<int(void**, void*, const char*)>("cuModuleGetFunction")),
        launch(library.function<Launch>("cuLaunchKernel")),
        error(library.function<int(int, const char**)>("cuGetErrorString")) {}

  int (*begin)(unsigned);
  int (*device)(int*, int);
  int (*attribute)(int*, int, int);
  int (*retain)(void**, int);
  int (*current)(void**);
  int (*set_current)(void*);
  int (*load)(void**, const void*);
  int (*find)(void**, void*, const char*);
  Launch* launch;
  int (*error)(int, const char**);

  void check(int result, ErrorKind kind, std::string_view what) const {
    const char* text = nullptr;
    if (result != 0) error(result, &text);
    if (result != 0)
      throw Error(kind, concat("the CUDA driver cannot ", what, ": ", text != nullptr ? text : "unknown error"));
  }
};

DriverDevice::DriverDevice(c10::Device device) : device_(device) {
  const auto library = Library::open("libcuda.so.1");
  EK_CHECK(library.is_set(), kConfig, "there is no libcuda.so.1; install the driver of the GPU");
  functions_ = std::make_unique<const Functions>(library);
  int number = 0, major = 0, minor = 0;
  functions_->check(functions_->begin(0), kConfig, "start");
  functions_->check(functions_->device(&number, device.index()), kConfig, "find the GPU");
  functions_->check(functions_->attribute(&major, kMajor, number), kConfig, "say what the GPU is");
  functions_->check(functions_->attribute(&minor, kMinor, number), kConfig, "say what the GPU is");
  functions_->check(functions_->retain(&context_, number), kConfig, "open the GPU");
  architecture_ = concat("sm_", major, minor);
}

DriverDevice::~DriverDevice() = default;  // at the end of the program, which releases the context

void DriverDevice::load(const std::string& cubin) {
  use_context();
  functions_->check(functions_->load(&module_, cubin.data()), kConfig, "load the kernels");
}

void DriverDevice::launch(const std::string& kernel, const LaunchShape& shape, const void* arguments) const {
  if (shape.blocks == 0) return;
  EK_CHECK(shape.blocks <= std::numeric_limits<int32_t>::max(), kInternal, kernel, " with ", shape.blocks, " blocks");
  use_context();
  void* parameters[] = {const_cast<void*>(arguments)};
  void* stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).native_handle();
  functions_->check(functions_->launch(function_of(kernel), static_cast<unsigned>(shape.blocks), 1, 1, shape.threads, 1,
                                       1, 0, stream, parameters, nullptr),
                    kInternal, concat("start ", kernel));
}

void* DriverDevice::function_of(const std::string& kernel) const {
  const std::lock_guard lock(mutex_);
  auto& function = kernels_[kernel];
  if (function == nullptr)
    functions_->check(functions_->find(&function, module_, kernel.c_str()), kInternal, concat("find ", kernel));
  return function;
}

/// LibTorch makes its context current in each thread that computes, mostly before this.
void DriverDevice::use_context() const {
  void* current = nullptr;
  functions_->check(functions_->current(&current), kInternal, "say its context");
  if (current != context_) functions_->check(functions_->set_current(context_), kInternal, "change its context");
}

}  // namespace evenkeel::nn::cuda
