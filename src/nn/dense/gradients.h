/// \file  What the nodes of this room do with gradients: add to those that are there, and leave out rows that none
/// flows through.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace evenkeel {

/// Where a node adds the gradient of `leaf`: to the one that is there, in place of handing its own to the graph, which
/// would make a second tensor and add it; else to `out`, which is made, of zeros. The first needs a leaf with gradient
/// and a pass for the gradients of all leaves, without a graph of its own. REQUIRES a call from a node's backward().
template <typename T>
T* gradient_buffer(const at::Tensor& leaf, at::Tensor& out);

/// The same for a node that has the gradient as a tensor, in any float type, but for `scale`: adds it to the one that
/// is there, or hands it back. Any device. \param part  of the leaf's sizes
/// \return for the graph; undefined where it was added
at::Tensor accumulate_gradient(const at::Tensor& leaf, const at::Tensor& part, double scale);

/// The rows of dy that are not zero throughout, in order, where they are so few that the others are worth leaving out;
/// else nothing. Rows of the last layer are zero where a loss covers answers alone. \param dy  [T, width], contiguous
/// \return [n] int64
std::optional<at::Tensor> nonzero_rows(const at::Tensor& dy_TD);

}  // namespace evenkeel
