/// \file  How evenly experts are used. Source: methods.md 19.1-19.3; natural logarithms. u is [M], non-negative, any sum.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/routing.h"

namespace evenkeel {

/// u_i = sum_c p_c a_{c,i} / n_c for one layer; sums to the mean K. \param counts one [E] per client.
at::Tensor utilization(std::span<const at::Tensor> counts, std::span<const int64_t> tokens,
                       std::span<const double> weights);
/// -sum q ln q with q = u / sum u; 0 when nothing was routed.
double entropy(const at::Tensor& u);
/// sum_ij |u_i - u_j| / (2 M sum u); 0 equal, (M-1)/M one expert alone.
double gini(const at::Tensor& u);
/// Experts with no token at all, and with less than a tenth of the balanced share.
int64_t dead_experts(const at::Tensor& u);
int64_t nearly_dead_experts(const at::Tensor& u);

}  // namespace evenkeel
