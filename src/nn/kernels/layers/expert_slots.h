/// \file  Sorts the token-choices of a routing by expert, and runs a function for every expert in parallel.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::nn::kernels {

/// The token-choices of a routing, sorted by expert. A slot is one token-choice. The slots of an expert are adjacent,
/// in the order of (token, choice). Dimension names: T tokens, K selected, S = T K slots, E experts.
struct ExpertSlots {
  std::vector<int64_t> offsets;  ///< [E + 1]; expert e has slots offsets[e] to offsets[e + 1] - 1
  std::vector<int64_t> token;    ///< [S], the token of each slot
  std::vector<int64_t> choice;   ///< [S], token * K + k of each slot
  std::vector<int64_t> slot_of;  ///< [S], the slot of each choice token * K + k
  std::vector<int64_t> by_load;  ///< experts with at least one token, largest load first

  /// Sorts a routing. \param experts  [T, K] row-major \throws Error{kShape} if an expert is not in 0 .. num_experts -
  /// 1
  ExpertSlots(std::span<const int64_t> experts, int64_t top_k, int64_t num_experts);

  /// Returns the number of slots of expert e.
  int64_t rows(int64_t e) const { return offsets[static_cast<size_t>(e + 1)] - offsets[static_cast<size_t>(e)]; }
  /// Returns the first slot of expert e.
  int64_t first(int64_t e) const { return offsets[static_cast<size_t>(e)]; }

  /// Returns how many experts, from the beginning of by_load, are best computed one after the other with all threads
  /// inside each (data-parallel). The others are best computed by one thread each (expert-parallel). The estimate
  /// minimises the total time; if there is little work, all experts are data-parallel.
  /// \param work_per_slot  multiply-adds of one slot
  int64_t data_parallel_experts(int64_t threads, int64_t work_per_slot) const;
};

/// Calls f(expert, workspace) for every expert that has a token. The data-parallel experts come first, one after the
/// other in the calling thread. Then each thread takes the next expert when it is free, the largest first. f must write
/// only to slots of its expert; then results do not depend on the threads.
template <typename Workspace, typename F>
void for_each_expert(const ExpertSlots& slots, int64_t work_per_slot, const F& f) {
  const auto count = static_cast<int64_t>(slots.by_load.size());
  const int64_t threads = at::get_num_threads(), data_parallel = slots.data_parallel_experts(threads, work_per_slot);
  {
    const WorkspaceLease<Workspace> workspace(workspace_pool<Workspace>());
    for (int64_t i = 0; i < data_parallel; ++i) f(slots.by_load[static_cast<size_t>(i)], *workspace);
  }
  std::atomic<int64_t> next{data_parallel};
  at::parallel_for(0, data_parallel < count ? threads : 0, 1, [&](int64_t, int64_t) {
    const WorkspaceLease<Workspace> workspace(workspace_pool<Workspace>());
    for (int64_t i = next++; i < count; i = next++) f(slots.by_load[static_cast<size_t>(i)], *workspace);
  });
}

}  // namespace evenkeel::nn::kernels
