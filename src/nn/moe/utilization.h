/// \file  How evenly experts are used. Natural logarithms. u is [M], non-negative, any sum; several layers are read
/// together by concatenating their u (all have the same sum, so the joint entropy is ln L + the mean of the layers').
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace evenkeel {

/// u_i = sum_c p_c a_{c,i} / n_c for one layer; sums to the mean K.
/// \param counts  one [E] per client; \param tokens  n_c, > 0.  \return [E] float64
at::Tensor utilization(std::span<const at::Tensor> counts, std::span<const int64_t> tokens,
                       std::span<const double> weights);
/// -sum q ln q with q = u / sum u; 0 when nothing was routed. 0 .. ln M.
double entropy(const at::Tensor& u);
/// -sum u ln u with u as it is: the definition the UB-SMoE paper prints, kept for comparison with it.
double entropy_unnormalized(const at::Tensor& u);
/// sum_ij |u_i - u_j| / (2 M sum u); 0 equal, (M-1)/M one expert alone. 0 when nothing was routed.
double gini(const at::Tensor& u);
/// Experts with no token at all, and with less than a tenth of the balanced share sum u / M (dead ones included).
int64_t dead_experts(const at::Tensor& u);
int64_t nearly_dead_experts(const at::Tensor& u);

}  // namespace evenkeel
