/// \file  Records work of a GPU as a graph, and replays it. A replay starts all recorded operators at once. They read
/// the present content of the recorded addresses, and give the same bits as without a graph. The library that records
/// is loaded on first use (base/system/graph_plugin.h).
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>

#include "base/system/graph_plugin.h"

namespace evenkeel {

/// Returns why this process cannot record graphs on `device`, and what to do; empty if it can. A small graph is tried
/// once per device. Not thread-safe.
std::string why_no_graphs(c10::Device device);

/// A pool of memory that several graphs share. It lives as long as one of its graphs.
struct SharedGraphPool {
  GraphPool name;
};

/// Recorded work. Threads: one at a time.
class DeviceGraph {
 public:
  /// Records what `work` starts. The work is not computed, and the tensors that it makes have no values before the
  /// first replay. Once such a tensor is freed, other graphs of the pool use its memory. `work` may neither wait for
  /// the device nor copy between it and the host. REQUIRES that why_no_graphs() is empty.
  /// \throws c10::Error when something in `work` cannot be recorded, and anything that `work` throws
  DeviceGraph(c10::Device device, std::shared_ptr<SharedGraphPool> pool, const std::function<void()>& work);
  /// Starts the recorded work on the current stream.
  void replay() const { graph_->replay(); }

 private:
  std::shared_ptr<SharedGraphPool> pool_;
  std::unique_ptr<RecordedGraph> graph_;
};

/// Returns a pool without graphs. REQUIRES that why_no_graphs() is empty for some device.
std::shared_ptr<SharedGraphPool> new_graph_pool();

}  // namespace evenkeel
