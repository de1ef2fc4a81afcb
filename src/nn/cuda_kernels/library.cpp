#include "nn/cuda_kernels/library.h"

#include <dlfcn.h>

namespace evenkeel::nn::cuda {

Library Library::open(const std::string& name) {
  Library library;
  library.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL);
  library.name_ = name;
  return library;
}

std::filesystem::path Library::file(const char* function) const {
  Dl_info info{};
  return ::dladdr(address(function), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : name_;
}

void* Library::address(const char* name) const {
  void* found = ::dlsym(handle_, name);
  EK_CHECK(found != nullptr, kConfig, name_, " has no function ", name, ": it is of another version of CUDA");
  return found;
}

}  // namespace evenkeel::nn::cuda
