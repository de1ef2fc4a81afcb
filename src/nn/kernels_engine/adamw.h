/// \file  Declares AdamW on processors, over pieces of all parameters.
#pragma once

#include "nn/engine/step_arithmetic.h"

namespace evenkeel::nn {

/// Computes StepArithmetic::adamw() in one pass over memory. The number of threads does not change the bits.
void kernels_adamw(AdamWState& state, const AdamWStep& step);

}  // namespace evenkeel::nn
