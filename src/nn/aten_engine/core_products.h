/// \file  Multiplies the cores of dense layers into their factors B, for all layers of equal shapes together (Fed-SB).
#pragma once

#include "lora/adapter.h"

namespace evenkeel::nn::aten {

/// Returns the factors of dense layers with a core on a GPU, with B C in the place of B and without a core. They are
/// products of stacks of B and C, so that a pass has a few operators for them, forward and backward. Differentiable in
/// B and C. Other factors are left out: on a processor, where an operator costs no launch, and those of experts, whose
/// B are too large to copy. \param state  null: none
lora::AdapterState with_cores_multiplied(const lora::AdapterState* state);

}  // namespace evenkeel::nn::aten
