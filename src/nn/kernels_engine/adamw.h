/// \file  Declares AdamW on the CPU. Threads share the work in pieces of equal length.
#pragma once

#include "nn/engine/step_arithmetic.h"

namespace evenkeel::nn {

/// Computes StepArithmetic::adamw() in one pass over memory. The number of threads does not change the bits.
void kernels_adamw(AdamWState& state, const AdamWStep& step);

}  // namespace evenkeel::nn
