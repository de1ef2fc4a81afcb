// What torch's own header of its Gloo back end names of gloo. The wheel ships the library inside libtorch_cpu, not
// headers; everything of gloo is held through pointers that LibTorch makes, so that declarations are enough
// (docs/decisions/0044-a-cluster-over-gloo.md). On the include path of cluster/gloo.cpp alone.
#pragma once

#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
};
}  // namespace gloo
