/// \file  Computes the frequencies and tables of rotary position embeddings (RoPE), plain or scaled to longer texts.
/// Operations, their order and their types follow modeling_rope_utils.py of transformers 5.23.
/// Dimension names: T tokens, P rotated elements of a head (`head_width`).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <variant>
#include <vector>

namespace evenkeel::nn {

/// Divides all frequencies by `factor`. Source: position interpolation, Chen et al. 2023.
struct LinearRope {
  double factor = 1;
};

/// Divides low frequencies by `factor` and keeps high ones. A frequency is low if it turns fewer than
/// `low_freq_factor` times in `trained_length` tokens, and high if it turns more than `high_freq_factor` times.
/// Frequencies in between are interpolated. Source: Llama 3.1.
struct Llama3Rope {
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< turns; low_freq_factor is the smaller one
  int64_t trained_length = 1;                        ///< tokens of the longest text before scaling
};

/// Divides low frequencies by `factor`, keeps high ones, and interpolates linearly by index in between. The bounds are
/// the indices whose frequencies turn `beta_fast` and `beta_slow` times in `trained_length` tokens.
/// Source: YaRN, Peng et al. 2023.
struct YarnRope {
  double factor = 1;
  double beta_fast = 32, beta_slow = 1;  ///< turns
  int64_t trained_length = 1;            ///< tokens of the longest text before scaling
  bool truncate = true;                  ///< true: the bounds are rounded to whole indices
};

/// Divides frequency i by factors[i]. Source: LongRoPE, Ding et al. 2024.
struct LongRope {
  std::vector<double> factors{};  ///< [P / 2]
};

/// Describes the rotary positions of a model.
struct RopeSpec {
  double theta = 10000.0;                                                              ///< base of the frequencies
  std::variant<std::monostate, LinearRope, Llama3Rope, YarnRope, LongRope> scaling{};  ///< std::monostate: plain RoPE
  double attention_factor = 1;  ///< factor of all cosines and sines
};

/// Returns the angle per position of each pair of elements, [P / 2] float32. \throws kShape if a LongRope does not have
/// P / 2 factors
at::Tensor rotary_frequencies(const RopeSpec& spec, int64_t head_width, c10::Device device);

/// Holds the cosines and sines of RoPE, [T, P] float32 each. Source: Su et al. 2021, in the half-split layout of
/// GPT-NeoX.
struct RotaryTable {
  at::Tensor cos, sin;
};
/// Computes the table for `positions` (integers or floats) on their device. \throws as rotary_frequencies()
RotaryTable rotary_table(const at::Tensor& positions_T, int64_t head_width, const RopeSpec& spec);

}  // namespace evenkeel::nn
