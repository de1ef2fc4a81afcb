/// \file  Declares AdamW with LibTorch's operators, on any device.
#pragma once

#include "nn/engine/step_arithmetic.h"

namespace evenkeel::nn::aten {

/// Computes StepArithmetic::adamw() without waiting for the device. Whole parameters are updated together, and stacks
/// with a step count per slice together. Equal to nn::kernels_adamw() up to rounding.
void adamw(AdamWState& state, const AdamWStep& step);

}  // namespace evenkeel::nn::aten
