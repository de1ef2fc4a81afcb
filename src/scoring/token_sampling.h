/// \file  Draws tokens at random. Probabilities equal those of transformers' temperature, top-k and top-p warpers,
/// applied in this order. Dimension names: N rows, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel::scoring {

/// Options of random sampling.
struct Sampling {
  double temperature = 1.0;  ///< divisor of the logits, above 0
  int64_t top_k = 0;         ///< number of likeliest tokens to keep, plus ties with the last one; 0: all
  double top_p = 1.0;        ///< in (0, 1]; keeps the fewest likeliest tokens whose probabilities sum to at least this
  uint64_t seed = 42;
  /// Checks the values. \throws kConfig naming the flag of `evenkeel generate` and the allowed values
  void check() const;
};

/// Computes the probabilities of the kept tokens, [N, V] float32. Other tokens get 0. At least one token per row is
/// kept.
at::Tensor kept_probabilities(const at::Tensor& logits_NV, const Sampling& sampling);

/// Returns the first token at which the cumulative probability exceeds `uniform` times the sum of all probabilities.
/// Rounding cannot lead beyond the last token of probability above 0.
/// \param probabilities_V  [V] float32, not negative, one above 0; the sum may differ slightly from 1
/// \param uniform          in [0, 1)
int64_t drawn_token(const at::Tensor& probabilities_V, double uniform);

}  // namespace evenkeel::scoring
