/// \file  Defines the memory limit of the logits in a loss.
#pragma once

#include <cstdint>

namespace evenkeel::nn {

/// The largest size of float32 logits that are held at once, in bytes. 16 rows are always allowed. Rows are divided
/// into the smallest number of chunks of nearly equal size. The memory estimate adds a quarter for the other buffers of
/// the loss (models/memory_plan.h).
constexpr int64_t kLogitsBytes = int64_t{1} << 27;

}  // namespace evenkeel::nn
