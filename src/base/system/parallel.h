/// \file  Work of unequal pieces for all threads.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace evenkeel {

/// Calls work(i) once for every i in [0, count), by all threads: each takes the next piece when it is done with one, so
/// that a thread that a neighbour of this process holds up holds up nobody. Where there is more than one piece, what
/// LibTorch does inside runs on one thread.
template <typename Work>
void for_each_piece(int64_t count, const Work& work) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(count, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < count; i = next++) work(i);
  });
}

/// Calls work(begin, end) for pieces of `grain` that make up [0, count), as above.
template <typename Work>
void for_each_range(int64_t count, int64_t grain, const Work& work) {
  for_each_piece((count + grain - 1) / grain, [&](int64_t i) { work(i * grain, std::min((i + 1) * grain, count)); });
}

}  // namespace evenkeel
