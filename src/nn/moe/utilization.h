/// \file  Measures how evenly experts are used. Logarithms are natural. u is [M], the utilisation of M experts,
/// non-negative, with any sum. For L layers, concatenate their u. All layers have the same sum, so the entropy is ln L
/// + the mean of the layers' entropies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace evenkeel::nn {

/// Computes u_i = sum over c of p_c a_{c,i} / n_c for one layer. u sums to the mean K.
/// \param counts  a_c, one [M] per client \param tokens  n_c > 0 \param weights  p_c \return [M] float64 \throws kShape
/// unless all three have the same length above 0; kData if a client routed no token
at::Tensor utilization(std::span<const at::Tensor> counts, std::span<const int64_t> tokens,
                       std::span<const double> weights);
/// Returns -sum q ln q with q = u / sum u, in 0 .. ln M; 0 if nothing was routed.
double entropy(const at::Tensor& u);
/// Returns -sum u ln u, without normalisation. The UB-SMoE paper prints this definition; it is used for comparison.
double entropy_unnormalized(const at::Tensor& u);
/// Returns sum_ij |u_i - u_j| / (2 M sum u): 0 if all are equal, (M-1)/M if one expert has all, 0 if nothing was
/// routed.
double gini(const at::Tensor& u);
/// Returns the number of experts without any token.
int64_t dead_experts(const at::Tensor& u);
/// Returns the number of experts with less than a tenth of the balanced share (sum u) / M. Dead experts are included.
int64_t nearly_dead_experts(const at::Tensor& u);

}  // namespace evenkeel::nn
