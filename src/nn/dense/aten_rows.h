/// \file  Gathers rows by an index, with a backward pass that uses no atomics: gradients are summed in the order of the
/// index, so that their bits are the same in every run. Any device. Dimension names: R source rows, N gathered rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::aten {

/// An index of rows and what its transpose needs, all int64 on one device.
struct RowIndex {
  at::Tensor from_N;     ///< the source row of each gathered row
  at::Tensor order_N;    ///< the gathered rows sorted by source row; undefined: they are sorted already
  at::Tensor lengths_R;  ///< the number of gathered rows of each source row
  bool repeats = false;  ///< whether some source row is gathered more than once
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
