/// \file  Products of many rows with one matrix per group of them, and what sorts rows into groups. No atomics. On a
/// GPU nothing waits for the device in bfloat16 (sm_90, sm_100) where row strides are multiples of 16 bytes; other
/// types and strides are right, and slower. Dimension names: T tokens, K selected, S = T K slots, E groups, I in, O
/// out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel::aten {

/// Token-choices sorted by expert, those of one expert in the tokens' order.
struct Slots {
  at::Tensor order_S;  ///< int64, the token-choice t K + k that lies in each slot
  at::Tensor token_S;  ///< int64, t
  at::Tensor place_S;  ///< int64, the slot of each token-choice
  at::Tensor ends_E;   ///< int32, where each expert's slots end
};
/// \param experts  [T, K] int64, below `groups`
Slots slots_of(const at::Tensor& experts_TK, int64_t groups);

/// y[s] = x[s] w[e(s)]. \param w  [E, I, O], may be a transposed view
at::Tensor grouped(const at::Tensor& x_SI, const at::Tensor& w_EIO, const at::Tensor& ends_E);

/// sum of x[s]^T y[s] over the slots s of each group, zeros where there are none. \return [E, I, O]
at::Tensor grouped_outer(const at::Tensor& x_SI, const at::Tensor& y_SO, const at::Tensor& ends_E);

/// sum_k weights[t, k] y[place[t K + k]], summed in float32 or wider. \param weights  [T, K] of y's type; undefined:
/// ones. \return [T, D]
at::Tensor summed_choices(const at::Tensor& y_SD, const at::Tensor& place_S, int64_t top_k,
                          const at::Tensor& weights_TK = {});

/// The numbers of columns that 16 bytes hold: what row strides must be multiples of.
int64_t alignment(at::ScalarType type);

}  // namespace evenkeel::aten
