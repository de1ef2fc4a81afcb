/// \file  Keeps the CUDA graphs of one model (nn/engine/pass_graphs.h).
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/system/device_graph.h"
#include "nn/aten_engine/recorded_stack.h"
#include "nn/aten_engine/step_recordings.h"
#include "nn/engine/pass_graphs.h"

namespace evenkeel::nn::aten {

constexpr size_t kMostRecorded = 16;   ///< recorded training passes that are kept
constexpr int64_t kLongestStep = 256;  ///< Layout::longest is a multiple of so many tokens

/// Implements PassGraphs. All training passes share one pool of memory, as large as the largest pass needs.
class StackGraphs final : public PassGraphs {
 public:
  at::Tensor run(const GraphedPass& pass) override;
  KvArena& arena() override { return arena_; }
  PassGraphCounts counts() const override { return counts_; }

 private:
  using Key = std::vector<int64_t>;
  /// A pass that was computed before. `stack` is null until it is recorded.
  struct Known {
    Key key;
    std::shared_ptr<RecordedStack> stack{};
  };

  /// Returns the recording of a pass, which may be made now; null if the pass is computed operator by operator.
  std::shared_ptr<RecordedStack> recording(const GraphedPass& pass, const Layout& layout);
  std::shared_ptr<RecordedStack> record(const GraphedPass& pass, const Layout& layout);
  /// Returns the entry of a key and moves it to the front; adds an entry for a new key.
  Known& known(Key key, bool& is_new);
  void drop_old();

  std::list<Known> known_;  // the most recently used first
  std::weak_ptr<SharedGraphPool> pool_;
  bool is_failed_ = false;
  PassGraphCounts counts_;
  KvArena arena_;
  StepRecordings steps_{counts_};  // of passes over a cache
};

}  // namespace evenkeel::nn::aten
