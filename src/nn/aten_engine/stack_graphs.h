/// \file  Keeps the recorded passes of one model (nn/engine/pass_graphs.h).
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

constexpr size_t kMostRecorded = 16;   ///< passes that are kept
constexpr int64_t kLongestStep = 256;  ///< the longest sequence counts as a multiple of so many tokens

/// See PassGraphs. All recordings share one pool of memory, whose size is that of the largest.
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
  /// Returns what is known of a key, as the most recently used. A new key is added.
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
