/// \file  The secret draws of private training on single rows: which rows a step uses, and the noise in its gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "crypto/secret.h"

namespace evenkeel::privacy {

/// The draws of one round of training: a function of its key. Objects are immutable; threads may share one.
class ExampleDraws {
 public:
  explicit ExampleDraws(const crypto::Secret& key) : key_(key) {}

  /// Draws each of `rows` rows with the given probability, independently. Returns their indices in ascending order;
  /// may be empty.
  std::vector<int64_t> lot(int64_t step, int64_t rows, double probability) const;
  /// Adds deviation * N(0, 1) to each value, from 64 random bits per pair (Box and Muller 1958). No noise is beyond
  /// 6.77 deviations. It is a Gaussian in float32, not an exact one, as usual for noise in gradients.
  /// \param tensor  index of the tensor in the step
  void add_noise(int64_t step, int64_t tensor, double deviation, std::span<float> values) const;

 private:
  crypto::Secret key_of(int64_t step) const;

  crypto::Secret key_;
};

}  // namespace evenkeel::privacy
