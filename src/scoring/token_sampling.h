/// \file  Which token follows when it is drawn: probabilities as transformers' temperature, top-k and top-p warpers,
/// make them, in that order. Dimension names: N rows, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel {

struct Sampling {
  double temperature = 1.0;  ///< divides the logits, above 0
  int64_t top_k = 0;         ///< tokens kept, the likeliest ones and what ties with the last; 0: all
  double top_p = 1.0;        ///< in (0, 1]: the fewest likeliest tokens that hold so much probability are kept
  uint64_t seed = 42;
  void check() const;  ///< \throws kConfig naming the flag and what is allowed
};

/// Probabilities [N, V] float32, 0 for what is not kept; at least one token of a row is.
at::Tensor kept_probabilities(const at::Tensor& logits_NV, const Sampling& sampling);

/// The token whose share of [0, 1) holds `uniform`. \param probabilities [V] float32; their sum may be a little off 1
int64_t drawn_token(const at::Tensor& probabilities_V, double uniform);

}  // namespace evenkeel
