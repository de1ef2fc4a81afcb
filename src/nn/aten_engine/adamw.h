/// \file  Declares AdamW with LibTorch's operators, on any device.
#pragma once

#include "nn/engine/step_arithmetic.h"

namespace evenkeel::nn::aten {

/// Computes StepArithmetic::adamw() without waiting for the device. Parameters with one step count are updated by one
/// fused operator. Stacks with a count per slice are updated one after the other. Equal to nn::kernels_adamw() up to
/// rounding.
void adamw(AdamWState& state, const AdamWStep& step);

}  // namespace evenkeel::nn::aten
