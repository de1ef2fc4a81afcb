/// \file  Declares rules that combine one tensor of all uploads of a round, in place of the weighted mean. They bound
/// what a minority of wrong uploads can do (docs/robust-aggregation.md says what each withstands, and what it costs).
/// A rule needs every upload in one process. So rules exclude sums over the processes of a cluster and secure
/// aggregation. Results depend neither on the order of the clients nor on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace evenkeel::methods {

/// One tensor of all uploads of a round, in the order of the clients.
struct Parts {
  std::vector<at::Tensor> values;            ///< theta_c, floating point, of one shape
  std::vector<double> weights;               ///< p_c, which sum to 1
  std::vector<at::Tensor> weights_E;         ///< empty, or per client a weight for each matrix of a stack, [E] float64
  at::Tensor before;                         ///< the server's value before the round; undefined: there is none
  std::function<std::string(size_t i)> who;  ///< names the owner of values[i] in errors
};

/// A rule for one round. Immutable; any thread may call it.
class CombiningRule {
 public:
  virtual ~CombiningRule() = default;
  /// Returns the combined tensor, in float64 if the values are float64, otherwise in float32.
  /// \throws kNumeric naming the owner of a value that is not finite, kShape for values of unequal shape; krum checks
  /// only the upload that it chose
  virtual at::Tensor combine(const Parts& parts) const = 0;
};

}  // namespace evenkeel::methods
