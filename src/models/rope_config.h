/// \file  Rotary positions as config.json describes them, read as transformers 5 reads them.
#pragma once

#include "models/checkpoint.h"

namespace evenkeel {

/// theta of plain RoPE. The block is `rope_scaling`, where it says something, else `rope_parameters`; what the block
/// does not say stands beside it, as transformers 4 writes it: `rope_theta`, `partial_rotary_factor`. Within the block
/// `type` is an older spelling of `rope_type`.
/// \param otherwise  the family's theta where config.json names none
/// \throws kCheckpoint on scaled or partial RoPE, on a key of a block that is not known here, on null, and on two
/// blocks that differ. Source: convert_rope_params_to_dict of transformers 5.23.
double read_rope_theta(const ModelConfig& config, double otherwise);

}  // namespace evenkeel
