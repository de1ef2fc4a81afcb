/// \file  CUDA kernels that gather and sum rows. The references are index_select() and embedding_bag() of LibTorch. All
/// functions return nullopt if device_for() is null (kernels.h): use LibTorch's operators then. Dimension names: R
/// rows, N gathered rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace evenkeel::nn::cuda {

/// Returns x[index_N], [N, ...] in the type of x. \param index_N  int64, contiguous
std::optional<at::Tensor> gathered_rows(const at::Tensor& x, const at::Tensor& index_N);

/// Returns for each row r the sum of weights[n] (x[order[n]] + second[order[n]]) for n from begins[r] up to the next
/// row's begin, added in this order in float32. \return [R, ...] in the type of x
/// \param second  same shape and type as x; undefined: none \param order_N, begins_R  int64, contiguous
/// \param weights_N  N numbers in the type of x, contiguous; undefined: 1
std::optional<at::Tensor> summed_rows(const at::Tensor& x, const at::Tensor& second, const at::Tensor& order_N,
                                      const at::Tensor& begins_R, const at::Tensor& weights_N);

}  // namespace evenkeel::nn::cuda
