/// \file  Launches an empty kernel with the CUDA driver's own functions, by itself and as the nodes of a graph. It
/// needs the driver's library only, no toolkit: the kernel is text that the driver compiles.
#pragma once

#include <dlfcn.h>

#include <array>
#include <memory>
#include <string>

#include "base/plain/error.h"

namespace evenkeel::bench {

/// The functions of the driver and an empty kernel on a stream of its own. For one thread. REQUIRES that LibTorch has
/// used the device before, which makes the context.
class DriverLaunches {
 public:
  /// Returns nothing where there is no driver, as on a machine without a GPU.
  /// \throws Error{kInternal} naming a function that failed
  static std::unique_ptr<DriverLaunches> open() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr : std::unique_ptr<DriverLaunches>(new DriverLaunches(library));
  }

  void launch() const { check(launch_(function_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr), "cuLaunchKernel"); }
  void wait() const { check(wait_(stream_), "cuStreamSynchronize"); }
  /// Records `nodes` launches as the graph that replay() starts.
  void capture(int nodes) {
    constexpr int kThreadLocal = 1;
    void* graph = nullptr;
    check(begin_(stream_, kThreadLocal), "cuStreamBeginCapture");
    for (int i = 0; i < nodes; ++i) launch();
    check(end_(stream_, &graph), "cuStreamEndCapture");
    check(instantiate_(&graph_, graph, 0), "cuGraphInstantiate");
  }
  void replay() const { check(replay_(graph_, stream_), "cuGraphLaunch"); }

 private:
  explicit DriverLaunches(void* library) {
    const std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    void* module = nullptr;
    check(function<int(void**, const void*)>(library, "cuModuleLoadData")(&module, text.c_str()), "cuModuleLoadData");
    check(function<int(void**, void*, const char*)>(library, "cuModuleGetFunction")(&function_, module, "nothing"),
          "cuModuleGetFunction");
    check(function<int(void**, unsigned)>(library, "cuStreamCreate")(&stream_, 1), "cuStreamCreate");
    launch_ = function<Launch>(library, "cuLaunchKernel");
    wait_ = function<int(void*)>(library, "cuStreamSynchronize");
    begin_ = function<int(void*, int)>(library, "cuStreamBeginCapture_v2");
    end_ = function<int(void*, void**)>(library, "cuStreamEndCapture");
    instantiate_ = function<int(void**, void*, unsigned long long)>(library, "cuGraphInstantiateWithFlags");
    replay_ = function<int(void*, void*)>(library, "cuGraphLaunch");
  }

  using Launch = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                     void**);

  template <typename F>
  static F* function(void* library, const char* name) {
    auto* found = reinterpret_cast<F*>(::dlsym(library, name));
    EK_CHECK(found != nullptr, kInternal, "the CUDA driver has no function ", name);
    return found;
  }
  static void check(int result, const char* what) { EK_CHECK(result == 0, kInternal, what, " returned ", result); }

  void *function_ = nullptr, *stream_ = nullptr, *graph_ = nullptr;
  Launch* launch_ = nullptr;
  int (*wait_)(void*) = nullptr;
  int (*begin_)(void*, int) = nullptr;
  int (*end_)(void*, void**) = nullptr;
  int (*instantiate_)(void**, void*, unsigned long long) = nullptr;
  int (*replay_)(void*, void*) = nullptr;
};

}  // namespace evenkeel::bench
