/// \file  Multiplies the cores of dense layers into their factors B, for all layers of equal shapes together (Fed-SB).
#pragma once

#include "lora/adapter.h"

namespace evenkeel::nn::aten {

/// Returns the factors of the dense layers on a GPU that have a core C, with B C in the place of B and without a core.
/// B and C of equal shapes are multiplied as one batch, so that a pass has few operators for them, forward and
/// backward. Differentiable in B and C. Left out are factors without a core, factors on the CPU, where an operator
/// costs no launch, and factors of experts, whose B are too large to copy. \param state  null: no factors
lora::AdapterState with_cores_multiplied(const lora::AdapterState* state);

}  // namespace evenkeel::nn::aten
