// The library that records CUDA graphs for the program (src/base/system/graph_plugin.h). It needs the headers of a CUDA
// build of LibTorch and of CUDA's runtime; no CUDA toolkit and no CUDA compiler. `make gpu` builds it.
#include "base/system/graph_plugin.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/version.h>

namespace evenkeel {
namespace {

class CudaGraph final : public RecordedGraph {
 public:
  void begin(const GraphPool& pool) override {
    pool_ = {pool.first, pool.second};
    device_ = c10::cuda::current_device();
    // Other threads may work with the device meanwhile.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
  }
  void end() override {
    try {
      graph_.capture_end();
    } catch (...) {
      // LibTorch ends the pool only after a capture without an error.
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
      throw;
    }
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
  c10::MempoolId_t pool_{0, 0};
  c10::DeviceIndex device_ = 0;
};

GraphPool make_pool() {
  const auto pool = at::cuda::graph_pool_handle();
  return {pool.first, pool.second};
}

std::unique_ptr<RecordedGraph> make_graph() { return std::make_unique<CudaGraph>(); }

}  // namespace
}  // namespace evenkeel

const evenkeel::GraphPlugin* evenkeel_graph_plugin() {
  static const evenkeel::GraphPlugin plugin{.interface = evenkeel::kGraphInterface,
                                            .torch = TORCH_VERSION,
                                            .make = &evenkeel::make_graph,
                                            .make_pool = &evenkeel::make_pool};
  return &plugin;
}
