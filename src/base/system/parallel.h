/// \file  Runs loops with pieces of unequal cost on all threads.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace evenkeel {

/// Calls work(i) once for every i in [0, count). Each thread takes the next index when it is free, so one slow thread
/// does not delay the rest. If count is above 1, LibTorch operations inside work() run on one thread; LAPACK needs
/// base/system/factorizations.h. An exception of work() is rethrown in the calling thread.
template <typename Work>
void for_each_piece(int64_t count, const Work& work) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(count, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < count; i = next++) work(i);
  });
}

/// Calls work(begin, end) for consecutive ranges of `grain` indices that cover [0, count); the last one may be shorter.
/// Scheduling is as in for_each_piece().
template <typename Work>
void for_each_range(int64_t count, int64_t grain, const Work& work) {
  for_each_piece((count + grain - 1) / grain, [&](int64_t i) { work(i * grain, std::min((i + 1) * grain, count)); });
}

}  // namespace evenkeel
