/// \file  Token-choices of a routing, sorted by expert once, and the loop that spreads experts over threads.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::kernels {

/// A slot is one token-choice. Slots of an expert are adjacent, in the order of (token, choice).
struct ExpertSlots {
  std::vector<int64_t> offsets;  ///< [E + 1], slots of expert e are offsets[e] .. offsets[e + 1]
  std::vector<int64_t> token;    ///< [S], token of a slot
  std::vector<int64_t> choice;   ///< [S], token * K + k
  std::vector<int64_t> slot_of;  ///< [S], by choice
  std::vector<int64_t> by_load;  ///< experts with a token, most first: so that the last one started is short

  /// \param experts  [T, K] row-major, each in 0 .. num_experts - 1
  ExpertSlots(std::span<const int64_t> experts, int64_t top_k, int64_t num_experts);

  int64_t rows(int64_t e) const { return offsets[static_cast<size_t>(e + 1)] - offsets[static_cast<size_t>(e)]; }
  int64_t first(int64_t e) const { return offsets[static_cast<size_t>(e)]; }

  /// How many of by_load's first are best done one after the other with all threads inside each, before the others are
  /// dealt out: those that one thread would be the last with, all where the work is little.
  /// \param work_per_slot  multiply-adds
  int64_t data_parallel_experts(int64_t threads, int64_t work_per_slot) const;
};

/// Calls f(expert, workspace) for every expert with a token: first for those that all threads do together, then for
/// the others, which go to whichever thread is free, the largest first, so that the last one started is short. Each
/// writes to its own slots, so results do not depend on that.
template <typename Workspace, typename F>
void for_each_expert(const ExpertSlots& slots, int64_t work_per_slot, const F& f) {
  const auto count = static_cast<int64_t>(slots.by_load.size());
  const int64_t threads = at::get_num_threads(), together = slots.data_parallel_experts(threads, work_per_slot);
  {
    const WorkspaceLease<Workspace> workspace(workspace_pool<Workspace>());
    for (int64_t i = 0; i < together; ++i) f(slots.by_load[static_cast<size_t>(i)], *workspace);
  }
  std::atomic<int64_t> next{together};
  at::parallel_for(0, together < count ? threads : 0, 1, [&](int64_t, int64_t) {
    const WorkspaceLease<Workspace> workspace(workspace_pool<Workspace>());
    for (int64_t i = next++; i < count; i = next++) f(slots.by_load[static_cast<size_t>(i)], *workspace);
  });
}

}  // namespace evenkeel::kernels
