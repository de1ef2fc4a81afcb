/// \file  Runs the CUDA kernels on a processor, from the same sources. The threads of a block are fibers of one thread
/// of the host: each runs until it waits for its warp or its block. Blocks run one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel::emulation {

/// In which order the threads of a block run between two points where they wait. A result that depends on it has a
/// race.
enum class Order { kForward, kBackward };

/// A kernel by the name of its entry point, e.g. "sum_rows_bf16_wide".
struct Entry {
  std::string_view name;
  size_t argument_bytes = 0;
  void (*thread)(const void* arguments) = nullptr;  ///< what each thread runs
};

/// Returns the kernel with this name; null: there is none.
const Entry* find_kernel(std::string_view name);

/// Runs a kernel. One call at a time. \param arguments  the struct that it takes
/// \throws std::runtime_error when threads wait for each other for ever
void run_kernel(const Entry& kernel, const void* arguments, unsigned blocks, unsigned threads, Order order);

}  // namespace evenkeel::emulation
