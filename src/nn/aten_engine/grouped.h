/// \file  Computes grouped matrix products: each group of rows is multiplied with its own matrix. The functions here
/// have no gradients; nn/aten_engine/experts.cpp computes them. No atomics are used. On GPUs of sm_90 and sm_100,
/// bfloat16 with row strides of multiples of 16 bytes runs without synchronising with the host. Other types and strides
/// give correct results more slowly.
///
/// A token that selects K experts makes K token-choices; choice k of token t has the number t K + k. A slot is a
/// position in the list of all token-choices sorted by expert.
/// Dimension names: T tokens, K selected experts of a token, S = T K token-choices or slots, E groups (experts), I in,
/// O out, D width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel::nn::aten {

/// Token-choices sorted by expert. The choices of one expert keep the order of their tokens.
struct Slots {
  at::Tensor order_S;   ///< int64, the token-choice t K + k of each slot
  at::Tensor token_S;   ///< int64, the token t of each slot; may be undefined without gradients (slot_inputs())
  at::Tensor place_S;   ///< int64, the slot of each token-choice
  at::Tensor ends_E;    ///< int32, the end of the slots of each expert
  at::Tensor begins_T;  ///< int64, the number of the first token-choice of each token
  at::Tensor
      idle_E11;  ///< bool, whether an expert has no slot; may be undefined without gradients, and on a CPU, where
                 ///< grouped_outer() does not need it
};

/// Index tensors that depend on the sizes of a routing only, so that all layers of a pass share them.
struct SlotNumbers {
  at::Tensor choices_S;  ///< int64, 0 to S - 1
  at::Tensor begins_T;   ///< int64, 0, K, 2 K and so on
  at::Tensor experts_E;  ///< 0 to E - 1; uint8 for up to 256 experts, else int32: fewer bits sort faster
  static SlotNumbers of(int64_t tokens, int64_t top_k, int64_t experts, c10::Device device);
};

/// Sorts the token-choices of a routing. \param experts_TK  [T, K] int64, each below `groups`
/// \param numbers  made by SlotNumbers::of(); if it is empty or of other sizes, it is ignored and made here
/// \param gradients  false: members that only gradients need stay undefined
Slots slots_of(const at::Tensor& experts_TK, int64_t groups, const SlotNumbers& numbers = {}, bool gradients = true);

/// Returns the input of each slot, x[token_S]. Without token_S, the tokens are repeated for their choices and ordered
/// by slot, which needs no operator for token_S. \return [S, D] in `type`
at::Tensor slot_inputs(const at::Tensor& x_TD, const Slots& slots, at::ScalarType type);

/// Computes y[s] = x[s] w[e], where e is the group of slot s.
/// \param x_SI    rows sorted by group: those of group e end at ends_E[e]
/// \param w_EIO   [E, I, O], in the type of x; may be a transposed view
/// \param ends_E  [E] int32, ascending, the last is S
/// \return [S, O] in the type of x
at::Tensor grouped(const at::Tensor& x_SI, const at::Tensor& w_EIO, const at::Tensor& ends_E);

/// Computes the sum of x[s]^T y[s] over the slots s of each group; 0 for empty groups. Rows are sorted by group.
/// \return [E, I, O] in the type of x
at::Tensor grouped_outer(const at::Tensor& x_SI, const at::Tensor& y_SO, const Slots& slots);

/// Computes the sum over k of weights[t, k] y[place[t K + k]]. Terms are added in float32 or wider.
/// \param weights_TK  [T, K] in the type of y; undefined: 1
/// \return [T, D] in the type of y
at::Tensor summed_choices(const at::Tensor& y_SD, const Slots& slots, const at::Tensor& weights_TK = {});

/// Returns how many elements 16 bytes hold. On the fast path, row strides must be multiples of this number.
int64_t alignment(at::ScalarType type);

}  // namespace evenkeel::nn::aten
