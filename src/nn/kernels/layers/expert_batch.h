/// \file  All experts of a layer over the rows that a routing gives them, on raw memory. Dimension names: T tokens, K
/// selected, S = T K slots, D hidden, F width, R ranks of the adapters together, E experts.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nn/kernels/layers/expert_pass.h"
#include "nn/kernels/layers/expert_slots.h"

namespace evenkeel::kernels {

/// What all experts of a pass share.
template <typename T>
struct ExpertBatch {
  const ExpertSlots& slots;
  MatmulTable products;
  int64_t top_k, hidden, width;
  const T *x, *weights;       ///< [T, D], [T, K]
  SavedActivations<T> saved;  ///< by slot: [S, F], [S, F], [S, R]; null: nothing is saved
  std::array<std::array<LoraView<T>, kLoraBranches>, kProjections> lora;  ///< of expert 0, where the stacks begin
  std::array<std::vector<StoredMatrix>, kProjections> matrices;           ///< [E] each
  std::vector<uint8_t> live;  ///< [T], whether a gradient flows through a token's row; empty: through all

  bool is_live(int64_t token) const { return live.empty() || live[static_cast<size_t>(token)]; }

  int64_t ranks() const { return lora[kGate][kAdapter].rank + lora[kUp][kAdapter].rank + lora[kDown][kAdapter].rank; }
  ExpertView<T> expert(int64_t e) const;
};

/// Rows of tokens, each the sum over its choices of weight * row of the slot; tokens that are not live get zeros. With
/// one expert per token nothing lies between: rows go straight to their tokens.
template <typename T>
struct TokenRows {
  T* by_token = nullptr;       ///< [T, D]
  T* by_slot = nullptr;        ///< [S, D], room; null with one expert per token
  const T* weights = nullptr;  ///< [T, K]; null: 1
};

/// y_t = sum_k weights[t, k] expert(x_t)
template <typename T>
void experts_forward(const ExpertBatch<T>& batch, const TokenRows<T>& y);

/// What the backward pass writes beside the gradients that `lora` names; null where no gradient is asked for.
template <typename T>
struct ExpertBatchGradients {
  TokenRows<T> dx{};
  T* dweights = nullptr;                                 ///< [T, K]; of tokens that are not live it is left alone
  std::array<std::vector<T*>, kProjections> matrices{};  ///< [E] x [out, in], empty when frozen
};

/// \param dy  [T, D]. REQUIRES what a forward pass saved.
template <typename T>
void experts_backward(const ExpertBatch<T>& batch, const T* dy_TD, const ExpertBatchGradients<T>& grads);

}  // namespace evenkeel::kernels
