/// \file  Rows gather_rows from other rows by an index, with a way back for their gradients that uses no atomics: sums in the
/// index's order, the same whenever they are made. Any device. Dimension names: R rows, N gather_rows from them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::aten {

/// An index of rows and what its transpose needs, all int64 on one device.
struct RowIndex {
  at::Tensor from_N;     ///< the row that each is gather_rows from
  at::Tensor order_N;    ///< those gather_rows, by the row they come from; undefined: they lie so already
  at::Tensor lengths_R;  ///< how many are gather_rows from each row
  bool repeats = false;  ///< some row is gather_rows more than once
  bool defined() const { return from_N.defined(); }
};

/// Indices on their way to a device: all in one tensor, so that one copy takes them there, and nothing waits for it.
class IndexUpload {
 public:
  /// \return a number to ask for afterwards
  size_t add(std::span<const int64_t> values);
  void send(c10::Device device);
  /// REQUIRES send(). \return a view, int64
  at::Tensor sent(size_t number) const;

 private:
  std::vector<int64_t> values_, begins_{0};
  at::Tensor all_;
};

/// A RowIndex on its way.
class RowIndexUpload {
 public:
  /// \param from_N  each below `rows`
  RowIndexUpload(std::span<const int64_t> from_N, int64_t rows, IndexUpload& upload);
  RowIndex sent(const IndexUpload& upload) const;

 private:
  size_t from_ = 0, order_ = 0, lengths_ = 0;
  bool sorted_ = true, repeats_ = false;
};

/// x[from_N]; gradients are summed per row, in float32 or wider where rows repeat. \param x  [R, ...] \return [N, ...]
at::Tensor gather_rows(const at::Tensor& x_R, const RowIndex& index);

/// The numbers of an int64 tensor on a processor. \throws kInternal for another
std::span<const int64_t> numbers(const at::Tensor& index);

}  // namespace evenkeel::aten
