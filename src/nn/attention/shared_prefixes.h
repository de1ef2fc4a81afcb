/// \file  Implements prefix sharing within a batch: tokens that follow the same tokens share one row. Operations on
/// single tokens are computed once per row. Attention needs one copy per token. Dimension names: T tokens, R rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace evenkeel::nn {

/// Converts between rows and tokens. Without shared rows all functions return their argument. All functions run outside
/// autograd. Threads: any.
class SharedRows {
 public:
  /// \param rows_T  int64, the row of each token, numbered in the order of first appearance (data/example.h);
  /// undefined: no shared rows \throws kShape for any other numbering
  explicit SharedRows(const at::Tensor& rows_T = {});

  /// Copies each row to all its tokens: [R, ...] -> [T, ...].
  at::Tensor expand(const at::Tensor& x_R) const;
  /// Returns the first token of each row: [T, ...] -> [R, ...]. All tokens of a row have equal values up to rounding.
  at::Tensor representatives(const at::Tensor& x_T) const;
  /// Writes each row to its first token and 0 to the others: [R, ...] -> [T, ...]. Transpose of representatives().
  at::Tensor scatter_to_representatives(const at::Tensor& x_R) const;
  /// Sums the tokens of each row: [T, ...] -> [R, ...]. Transpose of expand(). Tokens are added in their order, for any
  /// number of threads.
  at::Tensor sum_by_row(const at::Tensor& x_T) const;

 private:
  at::Tensor rows_T_, first_R_;
  std::vector<int64_t> begins_;  // [R + 1], first token of each row in tokens_
  std::vector<int64_t> tokens_;  // the tokens of row 0, then of row 1, ...
};

}  // namespace evenkeel::nn
