/// \file  The interface of a library that records the work of a GPU as a graph and starts it again as a whole. LibTorch
/// has such graphs for CUDA in its CUDA build only, whose headers this program does not need. So the library is built
/// by itself (plugins/cuda_graphs.cpp) and loaded when the program starts (base/system/device_graph.h).
/// This file includes the standard library only, because both sides are compiled with different headers of LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace evenkeel {

/// The name of a memory pool. Graphs of one pool share memory, so they must not be replayed at the same time.
using GraphPool = std::pair<uint64_t, uint64_t>;

/// The work of one recording. For one thread.
class RecordedGraph {
 public:
  RecordedGraph() = default;
  RecordedGraph(const RecordedGraph&) = delete;
  RecordedGraph& operator=(const RecordedGraph&) = delete;
  virtual ~RecordedGraph() = default;

  /// Begins to record what is started on the current stream, which is not computed. Tensors that are allocated until
  /// end() lie in `pool`. REQUIRES a current stream that is not the default one.
  virtual void begin(const GraphPool& pool) = 0;
  /// Ends the recording. Call it also after an error, before the object is destroyed. \throws what made it fail
  virtual void end() = 0;
  /// Starts the work on the current stream, at the addresses of the recording. REQUIRES end() without an error.
  virtual void replay() = 0;
};

/// What a library offers.
struct GraphPlugin {
  int interface = 0;            ///< kGraphInterface of the header that it was compiled with
  const char* torch = nullptr;  ///< version of the LibTorch that it was compiled with, as in "2.13.0"
  std::unique_ptr<RecordedGraph> (*make)() = nullptr;
  GraphPool (*make_pool)() = nullptr;  ///< returns the name of a new pool
};

/// Increases with every change of this file's declarations.
constexpr int kGraphInterface = 1;

}  // namespace evenkeel

/// The only function that such a library exports. \return null: it cannot record here
extern "C" __attribute__((visibility("default"))) const evenkeel::GraphPlugin* evenkeel_graph_plugin();
