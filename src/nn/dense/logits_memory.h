/// \file  How much memory the logits of a loss may take at once.
#pragma once

#include <cstdint>

namespace evenkeel {

/// Bytes of float32 logits that are held at once, at most, but for 16 rows, which are always allowed. All other buffers
/// of the loss take a quarter of that. Rows are divided into as few chunks of nearly equal size as this limit allows.
constexpr int64_t kLogitsBytes = int64_t{1} << 27;

}  // namespace evenkeel
