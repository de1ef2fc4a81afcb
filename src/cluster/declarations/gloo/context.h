// Declares the types of gloo that LibTorch's header ProcessGroupGloo.hpp uses. The wheel contains the library inside
// libtorch_cpu but not its headers. LibTorch creates all objects of gloo and holds them through pointers, so
// declarations suffice (docs/decisions/0044-a-cluster-over-gloo.md). Only cluster/gloo.cpp has this folder on its
// include path.
#pragma once

#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
};
}  // namespace gloo
