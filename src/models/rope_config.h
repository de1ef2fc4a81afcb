/// \file  Reads the rotary position settings of config.json as transformers 5 does.
#pragma once

#include "models/checkpoint.h"

namespace evenkeel {

/// Returns theta of plain RoPE. Settings are read from the object `rope_scaling` if it is not empty, or else from
/// `rope_parameters`. Missing settings are read from the top level, where transformers 4 writes `rope_theta` and
/// `partial_rotary_factor`. In the object, `type` is an older name of `rope_type`.
/// Source: convert_rope_params_to_dict of transformers 5.23.
/// \param otherwise  the family's theta, used if config.json has none
/// \throws kCheckpoint on scaled or partial RoPE, an unknown key of the object, null, or two objects that differ
double read_rope_theta(const ModelConfig& config, double otherwise);

}  // namespace evenkeel
