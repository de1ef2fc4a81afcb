/// \file  Reads the rotary position settings of config.json as transformers 5 does.
#pragma once

#include "models/checkpoint.h"
#include "nn/attention/rotary.h"

namespace evenkeel::models {

/// Sizes and defaults of the model that RoPE needs.
struct RopeSizes {
  double theta;           ///< the family's theta, used if config.json has none
  int64_t max_positions;  ///< value of max_position_embeddings
  int64_t head_width;
};

/// Returns the rotary positions that `config` describes: plain, or of type linear, dynamic, llama3 or yarn. Settings
/// are read from the object `rope_scaling` if it is not empty, or else from `rope_parameters`. Missing settings are
/// read from the top level, where transformers 4 writes `rope_theta` and `partial_rotary_factor`. In the object, `type`
/// is an older name of `rope_type`. A top-level `original_max_position_embeddings` replaces that of the object.
/// Type dynamic gets the frequencies that it has for texts of up to max_position_embeddings; models refuse longer
/// texts. Source: convert_rope_params_to_dict() and the functions of ROPE_INIT_FUNCTIONS of transformers 5.23.
/// \throws kCheckpoint on partial RoPE, another type, an unknown key of the object, null, a value out of range, or two
/// objects that differ
nn::RopeSpec read_rope(const ModelConfig& config, const RopeSizes& sizes);

/// The rotary positions of a family with type longrope, where a part of each head may be rotated.
struct LongPositions {
  nn::RopeSpec rope;
  int64_t rotary_width = 0;  ///< how many elements of each head are rotated, from the first on
  int64_t longest = 0;       ///< longest text in tokens for which `rope` holds
};
/// Returns the positions of Phi-3: plain, or of type longrope, whose older names are su and yarn. Of longrope the
/// factors for texts of up to `original_max_position_embeddings` tokens are returned; transformers computes longer
/// texts with other factors. Attention scores are multiplied by `attention_factor`, or else by what `factor`, or the
/// ratio of the two lengths, gives.
/// \throws kCheckpoint as read_rope(); for a part of a head that is no even number of elements; for lists of factors of
/// another length; and for an original length in the object that differs from that at the top level, which alone
/// transformers reads
LongPositions read_long_positions(const ModelConfig& config, const RopeSizes& sizes);

/// The rotary positions of a family whose layers are of two kinds.
struct RopesByKind {
  nn::RopeSpec full;     ///< of layers that attend to all tokens
  nn::RopeSpec sliding;  ///< of layers with a sliding window
};
/// Returns both, as Gemma 3 has them. They are read from the objects `full_attention` and `sliding_attention` of
/// `rope_parameters`, or from `rope_theta`, `rope_scaling` (of the first kind alone) and `rope_local_base_freq`.
/// \param sizes  with the family's theta of the first kind \param sliding_theta  that of the second
/// \throws kCheckpoint as read_rope(), for another kind, and for a `rope_scaling` whose type has its older name alone,
/// which versions of transformers read differently
RopesByKind read_ropes_by_kind(const ModelConfig& config, const RopeSizes& sizes, double sliding_theta);

}  // namespace evenkeel::models
