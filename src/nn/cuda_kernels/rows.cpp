#include "nn/cuda_kernels/rows.h"

#include <ATen/ATen.h>

#include <functional>
#include <numeric>

#include "nn/cuda_kernels/kernels.h"
#include "nn/cuda_kernels/source/arguments.h"

namespace evenkeel::nn::cuda {
namespace {

/// Returns an unset tensor in the form of x with another number of rows.
at::Tensor like_with_rows(const at::Tensor& x, int64_t rows) {
  auto sizes = x.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, x.options());
}

/// Returns the number of values of a row, also where there is none.
int64_t width_of(const at::Tensor& x) {
  const auto sizes = x.sizes().slice(1);
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

std::optional<at::Tensor> gathered_rows(const at::Tensor& x, const at::Tensor& index_N) {
  const auto* device = device_for(Kernel::kRows, x);
  if (device == nullptr) return std::nullopt;
  const auto from = x.contiguous();
  auto y = like_with_rows(x, index_N.size(0));
  const int64_t width = width_of(x);
  launch(*device, "gather_rows", x.scalar_type(), can_be_wide(width, x.scalar_type(), {&from, &y}), {y.size(0)},
         GatherRows{from.data_ptr(), address<long long>(index_N), y.data_ptr(), static_cast<int>(width)});
  return y;
}

std::optional<at::Tensor> summed_rows(const at::Tensor& x, const at::Tensor& second, const at::Tensor& order_N,
                                      const at::Tensor& begins_R, const at::Tensor& weights_N) {
  const auto* device = device_for(Kernel::kRows, x);
  if (device == nullptr) return std::nullopt;
  const auto from = x.contiguous(), other = second.defined() ? second.contiguous() : second;
  const int64_t rows = begins_R.size(0), width = width_of(x);
  auto y = like_with_rows(x, rows);
  launch(*device, "sum_rows", x.scalar_type(), can_be_wide(width, x.scalar_type(), {&from, &other, &y}), {rows},
         SumRows{from.data_ptr(), address<void>(other), address<long long>(order_N), address<long long>(begins_R),
                 address<void>(weights_N), y.data_ptr(), order_N.size(0), rows, static_cast<int>(width)});
  return y;
}

}  // namespace evenkeel::nn::cuda
