/// \file  Reads the rotary position settings of config.json as transformers 5 does.
#pragma once

#include "models/checkpoint.h"
#include "nn/attention/rotary.h"

namespace evenkeel::models {

/// Sizes and defaults of the model that RoPE needs.
struct RopeSizes {
  double theta;             ///< the family's theta, used if config.json has none
  int64_t max_positions;    ///< value of max_position_embeddings
  int64_t head_width;       ///< number of elements of a head that are rotated
  bool whole_heads = true;  ///< true: settings for a part of each head are refused
};

/// Returns how many elements of a head are rotated: the share `partial_rotary_factor` of its width, rounded down. The
/// key is read where read_rope() reads settings. \param otherwise  the share if the key is absent; 1: the whole head
/// without reading the key, which read_rope() then checks
/// \throws kCheckpoint on a share that is not in (0, 1], and on an odd number of elements
int64_t read_rotary_width(const ModelConfig& config, int64_t head_width, double otherwise);

/// Returns the factor of attention scores that DeepSeek's families have with scaled RoPE: (0.1 mscale_all_dim
/// ln(factor) + 1)^2, and 1 without those settings. \throws kCheckpoint as read_rope()
double read_latent_scale(const ModelConfig& config);

/// Returns the rotary positions that `config` describes: plain, or of type linear, dynamic, llama3 or yarn. Settings
/// are read from the object `rope_scaling` if it is not empty, or else from `rope_parameters`. Missing settings are
/// read from the top level, where transformers 4 writes `rope_theta` and `partial_rotary_factor`. In the object, `type`
/// is an older name of `rope_type`. A top-level `original_max_position_embeddings` replaces that of the object.
/// Type dynamic gets the frequencies that it has for texts of up to max_position_embeddings; models refuse longer
/// texts. Source: convert_rope_params_to_dict() and the functions of ROPE_INIT_FUNCTIONS of transformers 5.23.
/// \throws kCheckpoint on partial RoPE, another type, an unknown key of the object, null, a value out of range, or two
/// objects that differ
nn::RopeSpec read_rope(const ModelConfig& config, const RopeSizes& sizes);

}  // namespace evenkeel::models
