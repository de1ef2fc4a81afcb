/// \file  Records passes that add one token to each sequence of a cache, as CUDA graphs (nn/engine/pass_graphs.h).
/// Dimension names: B sequences, D width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/system/device_graph.h"
#include "nn/aten_engine/cache_places.h"
#include "nn/aten_engine/layout.h"
#include "nn/engine/pass_graphs.h"

namespace evenkeel::nn::aten {

constexpr size_t kMostRecordedSteps = 16;  ///< passes that are kept, recorded or seen once

/// A recorded pass. A replay reads the batch from `layout` and `step`, reads and writes the cache, and writes
/// `hidden_BD`.
struct RecordedStep {
  std::vector<int64_t> key;
  std::shared_ptr<const PreparedFactors> factors{};  // kept alive, so that no other factors get their address
  Layout layout{};
  PlacesStep step{};
  at::Tensor hidden_BD{};
  std::unique_ptr<DeviceGraph> graph{};  // null: seen once, not recorded yet
};

/// Keeps the recorded passes of one model. All share one pool of memory.
class StepRecordings {
 public:
  /// \param counts  run() adds to these counts; borrowed
  explicit StepRecordings(PassGraphCounts& counts) : counts_(counts) {}
  /// Computes a pass over a cache: see PassGraphs. The next call overwrites the result.
  /// \param may_record  false: the pass runs operator by operator, padded as if it were recorded \return [B, D]
  at::Tensor run(const GraphedPass& pass, bool may_record);
  /// Drops all recordings and the factors that they keep.
  void clear() { known_.clear(); }

 private:
  struct Padded;
  at::Tensor eager(const GraphedPass& pass);
  at::Tensor eager(const GraphedPass& pass, const Padded& padded);
  at::Tensor replay(const RecordedStep& recorded, const Padded& padded);
  /// Returns the recording of a pass, which may be made now; null: the pass is computed operator by operator.
  const RecordedStep* recording(const GraphedPass& pass, const Padded& padded);
  void record(const GraphedPass& pass, const Padded& padded, RecordedStep& into);
  /// Compares the first replay with the operators. \throws kInternal if they differ
  void check_replay(const GraphedPass& pass, const Padded& padded, const RecordedStep& recorded);

  PassGraphCounts& counts_;
  std::list<RecordedStep> known_;  // the most recently used first
  std::weak_ptr<SharedGraphPool> pool_;
  bool is_failed_ = false;
};

}  // namespace evenkeel::nn::aten
