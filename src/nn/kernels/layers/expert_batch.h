/// \file  Computes the forward and backward pass of all experts of a layer on raw memory. Dimension names: T tokens, K
/// selected, S = T K slots, D hidden, F width, R sum of the adapter ranks of the three projections, E experts.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nn/kernels/layers/expert_pass.h"
#include "nn/kernels/layers/expert_slots.h"

namespace evenkeel::nn::kernels {

/// The operands of a pass over all experts.
template <typename T>
struct ExpertBatch {
  const ExpertSlots& slots;
  MatmulTable products;
  int64_t top_k, hidden, width;
  const T *x, *weights;       ///< x [T, D], routing weights [T, K]
  SavedActivations<T> saved;  ///< by slot: g and u [S, F], xa [S, R]; null: nothing is saved
  std::array<std::array<LoraView<T>, kLoraBranches>, kProjections> lora;  ///< views of the factors of expert 0
  std::array<std::vector<StoredMatrix>, kProjections> matrices;           ///< [E] each
  std::vector<uint8_t> live;  ///< [T], 0: the token has no gradient; empty: all tokens have one

  /// Returns true if the token has a gradient.
  bool is_live(int64_t token) const { return live.empty() || live[static_cast<size_t>(token)]; }

  /// Returns R.
  int64_t ranks() const { return lora[kGate][kAdapter].rank + lora[kUp][kAdapter].rank + lora[kDown][kAdapter].rank; }
  /// Returns the weights and factors of expert e.
  ExpertView<T> expert(int64_t e) const;
};

/// A result with one row per token. A row is the sum, over the token's choices, of weight * (row of the choice's slot).
/// Tokens that are not live get zeros. With one expert per token, rows are written to `by_token` directly, and rows of
/// tokens that are not live stay unchanged.
template <typename T>
struct TokenRows {
  T* by_token = nullptr;       ///< [T, D]
  T* by_slot = nullptr;        ///< [S, D], working memory; null with one expert per token
  const T* weights = nullptr;  ///< [T, K]; null: 1
};

/// Computes y_t = sum over k of weights[t, k] * expert_k(x_t). Threads: at::get_num_threads().
template <typename T>
void experts_forward(const ExpertBatch<T>& batch, const TokenRows<T>& y);

/// The gradients of a backward pass, except the gradients of the factors, to which ExpertBatch::lora points. Null: not
/// wanted.
template <typename T>
struct ExpertBatchGradients {
  TokenRows<T> dx{};
  T* dweights = nullptr;                                 ///< [T, K]; unchanged for tokens that are not live
  std::array<std::vector<T*>, kProjections> matrices{};  ///< [E] pointers to [out, in]; empty: frozen
};

/// Computes the gradients. REQUIRES `saved` of the forward pass. \param dy_TD  [T, D]
template <typename T>
void experts_backward(const ExpertBatch<T>& batch, const T* dy_TD, const ExpertBatchGradients<T>& grads);

}  // namespace evenkeel::nn::kernels
