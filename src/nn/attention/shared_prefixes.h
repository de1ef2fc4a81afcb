/// \file  Rows of a batch that several of its tokens share, because they stand behind the same tokens: all that is done
/// to one token alone is done once, where tokens meet each has its copy. Dimension names: T tokens, R rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace evenkeel {

/// Undefined rows: each token has one of its own, and every function hands back what it is given. No function here
/// records a graph. Threads: any.
class SharedRows {
 public:
  /// \param rows_T  int64, each token's row, numbered as they first appear (data/example.h). \throws kShape for other
  /// numbers
  explicit SharedRows(const at::Tensor& rows_T = {});

  /// [R, ...] -> [T, ...]: each token's copy.
  at::Tensor expand(const at::Tensor& x_R) const;
  /// [T, ...] -> [R, ...]: of each row the first token's, where all are equal but for rounding.
  at::Tensor representatives(const at::Tensor& x_T) const;
  /// The transpose of representatives(): [R, ...] -> [T, ...], zero at the tokens after the first.
  at::Tensor scatter_to_representatives(const at::Tensor& x_R) const;
  /// The transpose of expand(): [T, ...] -> [R, ...], sums in the tokens' order whatever the threads.
  at::Tensor sum_by_row(const at::Tensor& x_T) const;

 private:
  at::Tensor rows_T_, first_R_;
  std::vector<int64_t> begins_;  // R + 1, into tokens_
  std::vector<int64_t> tokens_;  // of each row, in order
};

}  // namespace evenkeel
