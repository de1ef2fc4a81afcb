/// \file  Gathers rows by an index, on any device. Gradients are summed in the order of the index, without atomics, so
/// they are the same in every run. Dimension names: R source rows, N gathered rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::nn::aten {

/// A gather index and its transpose, which sums the gradients; int64 on one device.
struct RowIndex {
  at::Tensor from_N;    ///< the source row of each gathered row
  at::Tensor order_N;   ///< the gathered rows sorted by source row
  at::Tensor begins_R;  ///< the first position of each source row in order_N
  bool defined() const { return from_N.defined(); }
};

/// Converts indices to int32. REQUIRES that they fit.
std::vector<int32_t> ints(std::span<const int64_t> values);

/// Copies several index arrays to a device with one asynchronous copy. Usage: add() all, send(), then sent().
class IndexUpload {
 public:
  /// Adds an array. \return the number of the array, for sent(), sent_ints() or sent_floats()
  size_t add(std::span<const int64_t> values);
  size_t add(std::span<const int32_t> values);
  size_t add(std::span<const float> values);
  /// Starts the copy of all arrays.
  void send(c10::Device device);
  /// Returns a view of array `number` on the device, int64. REQUIRES send().
  at::Tensor sent(size_t number) const;
  /// Returns a view of an array of int32 or of floats. REQUIRES send().
  at::Tensor sent_ints(size_t number) const;
  at::Tensor sent_floats(size_t number) const;

 private:
  template <typename T>
  size_t add_pairs(std::span<const T> values);

  std::vector<int64_t> values_, begins_{0};
  std::vector<int64_t> counts_{};  // of the elements of each array
  at::Tensor all_;
};

/// Copies a RowIndex to a device as part of an IndexUpload.
class RowIndexUpload {
 public:
  /// Adds the arrays of the index to `upload`. \param from_N  source rows, each below `rows`
  RowIndexUpload(std::span<const int64_t> from_N, int64_t rows, IndexUpload& upload);
  /// Returns the index on the device. REQUIRES upload.send().
  RowIndex sent(const IndexUpload& upload) const;

 private:
  size_t from_ = 0, order_ = 0, begins_ = 0;
};

/// Returns x[index_N] without a gradient. \param index_N  int64, contiguous
at::Tensor selected_rows(const at::Tensor& x, const at::Tensor& index_N);

/// Returns x[from_N]. Gradients are summed per source row, in float32 or wider. \param x_R  [R, ...]
/// \return [N, ...]
at::Tensor gather_rows(const at::Tensor& x_R, const RowIndex& index);

}  // namespace evenkeel::nn::aten
