/// \file  Reads the rotary position settings of config.json as transformers 5 does.
#pragma once

#include "models/checkpoint.h"
#include "nn/attention/rotary.h"

namespace evenkeel::models {

/// Sizes and defaults of the model that RoPE needs.
struct RopeSizes {
  double theta;             ///< the family's theta, used if config.json has none
  int64_t max_positions;    ///< value of max_position_embeddings
  int64_t head_width;       ///< rotated elements of a head; for read_long_positions(), all elements
  bool whole_heads = true;  ///< true: settings for a part of each head are refused
};

/// Returns how many elements of a head are rotated: the share `partial_rotary_factor` of its width, rounded down. The
/// key is read where read_rope() reads settings. \param otherwise  the share if the key is absent
/// \throws kCheckpoint on a share that is not in (0, 1], and on an odd number of elements
int64_t read_rotary_width(const ModelConfig& config, int64_t head_width, double otherwise);

/// Returns an additional factor of attention scores, which DeepSeek's families have with YaRN: (0.1 mscale_all_dim
/// ln(factor) + 1)^2, and 1 without these settings. \throws kCheckpoint as read_rope()
double read_latent_scale(const ModelConfig& config);

/// Returns the rotary positions that `config` describes: plain, or of type linear, dynamic, llama3 or yarn. Settings
/// are read from the object `rope_scaling` if it is not empty, or else from `rope_parameters`. Missing settings are
/// read from the top level, where transformers 4 writes `rope_theta` and `partial_rotary_factor`. In the object, `type`
/// is an older name of `rope_type`. A top-level `original_max_position_embeddings` replaces the value in the object.
/// Type dynamic changes frequencies with the length of a text; the result holds for texts of up to
/// max_position_embeddings tokens, and models refuse longer ones. Source: convert_rope_params_to_dict() and the
/// functions of ROPE_INIT_FUNCTIONS of transformers 5.23.
/// \throws kCheckpoint on partial RoPE if sizes.whole_heads, an unsupported type, an unknown key of the object, null, a
/// value out of range, or two objects that differ
nn::RopeSpec read_rope(const ModelConfig& config, const RopeSizes& sizes);

/// The rotary positions of a family with type longrope, where a part of each head may be rotated.
struct LongPositions {
  nn::RopeSpec rope;
  int64_t rotary_width = 0;  ///< how many elements of each head are rotated, from the first on
  int64_t longest = 0;       ///< longest text in tokens for which `rope` holds
};
/// Returns the positions of Phi-3: plain, or of type longrope, whose older names are su and yarn. For longrope the
/// result has the factors for texts of up to `original_max_position_embeddings` tokens; transformers uses other factors
/// for longer texts. Cosines and sines are multiplied by `attention_factor`. Without that key the multiplier is sqrt(1
/// + ln f / ln original length), or 1 for f <= 1, where f is `factor`, or else the ratio of max_position_embeddings to
/// the original length.
/// \throws kCheckpoint as read_rope(); if the rotated part of a head is not an even number of elements; if a list of
/// factors does not have half as many entries; and if the original length in the object differs from the top level's,
/// which is the only one that transformers reads
LongPositions read_long_positions(const ModelConfig& config, const RopeSizes& sizes);

/// The rotary positions of a family whose layers are of two kinds.
struct RopesByKind {
  nn::RopeSpec full;     ///< of layers that attend to all tokens
  nn::RopeSpec sliding;  ///< of layers with a sliding window
};
/// Returns both for Gemma 3. They are read from the objects `full_attention` and `sliding_attention` of
/// `rope_parameters`, or from `rope_theta`, `rope_scaling` (for full attention only) and `rope_local_base_freq`.
/// \param sizes  with the family's theta for full attention \param sliding_theta  the family's theta for sliding
/// windows
/// \throws kCheckpoint as read_rope(), for an unknown kind of layers, and for a `rope_scaling` with `type` but without
/// `rope_type`, which versions of transformers read differently
RopesByKind read_ropes_by_kind(const ModelConfig& config, const RopeSizes& sizes, double sliding_theta);

}  // namespace evenkeel::models
