/// \file  Provides helpers for autograd nodes that accumulate gradients in place and skip rows without a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace evenkeel::nn {

/// Returns the memory to which a node adds the gradient of `leaf`. If leaf.grad() exists and the call is a plain
/// backward() for all leaves, without create_graph, this is the memory of leaf.grad(). It saves a second tensor and an
/// addition. Otherwise `out` is set to a tensor of zeros, and the node returns it to autograd. REQUIRES a call from a
/// node's backward().
template <typename T>
T* gradient_buffer(const at::Tensor& leaf, at::Tensor& out);

/// Adds scale * part to leaf.grad() under the same conditions as gradient_buffer(). Otherwise returns scale * part for
/// autograd. Any device. \param part  any float type, with the sizes of `leaf`
/// \return undefined if the gradient was added in place
at::Tensor accumulate_gradient(const at::Tensor& leaf, const at::Tensor& part, double scale);

/// Adds scale * x y to leaf.grad() under the same conditions, in one operator where the device supports it. Otherwise
/// returns scale * x y for autograd. \param x, y  matrices of one float type, which may be narrower than the type of
/// `leaf` \return undefined if the gradient was added in place
at::Tensor accumulate_product(const at::Tensor& leaf, const at::Tensor& x, const at::Tensor& y, double scale);

/// For all i, adds part[i] to the slice of leaves[i].grad() that begins at index `begin` of `axis`, if all leaves meet
/// the same conditions. Gradients that lie in one stack (stacked_zeros()) are changed by one operator.
/// \param part  [n, ...], of the type of the leaves
/// \return one gradient for autograd per leaf; undefined if the gradients were added in place
std::vector<at::Tensor> accumulate_slices(at::TensorList leaves, int64_t axis, int64_t begin, const at::Tensor& part);

/// Returns zeros like each of `tensors`, which have equal sizes, one after the other in memory. Each begins at a
/// multiple of 64 bytes.
std::vector<at::Tensor> stacked_zeros(at::TensorList tensors);

/// Returns the indices of the rows of dy that have a non-zero element, in order, if at most 3/4 of the rows have one.
/// Otherwise returns nullopt, because skipping rows would cost more than it saves. In the last layer, rows of prompts
/// are zero if the loss covers answers only. \param dy_TD  [T, width], contiguous \return [n] int64
std::optional<at::Tensor> nonzero_rows(const at::Tensor& dy_TD);

}  // namespace evenkeel::nn
