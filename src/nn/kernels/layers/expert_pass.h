/// \file  One expert's forward and backward pass on raw memory, LoRA beside each projection. Dimension names: N rows of
/// the expert, D hidden, F width, R ranks of the adapters together.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nn/kernels/layers/lora_product.h"

namespace evenkeel::kernels {

enum Projection : size_t { kGate, kUp, kDown, kProjections };
/// Factors beside a projection: the adapter, and the standing change of the base, which gets no gradient.
enum LoraBranch : size_t { kAdapter, kChange, kLoraBranches };

template <typename T>
struct ExpertView {
  std::array<StoredMatrix, kProjections> weights;  ///< [F, D], [F, D], [D, F]
  std::array<std::array<LoraView<T>, kLoraBranches>, kProjections> lora;

  int64_t hidden() const { return weights[kGate].in; }
  int64_t width() const { return weights[kGate].out; }
  int64_t rank_of(LoraBranch which) const {
    return lora[kGate][which].rank + lora[kUp][which].rank + lora[kDown][which].rank;
  }
};

/// What a forward pass keeps for the backward pass.
template <typename T>
struct SavedActivations {
  T *g = nullptr, *u = nullptr;  ///< [N, F], outputs of gate and up
  T* xa = nullptr;               ///< [N, R], input of each projection times its adapter's A^T: gate, up, down
};

template <typename T>
struct ExpertWorkspace {
  MatmulScratch<T> product;
  LoraScratch<T> lora;
  Scratch<T> x, y, g, u, h, dh, du, dy, xa, change_xa, dy_b, change_dy_b;
  std::vector<int64_t> slots;
  std::vector<T> row_weights;
};

/// y = down(silu(gate(x)) * up(x)), not yet weighted. Gate and up are one product with x, and so are their
/// factors' A.
/// \param x [N, D]; y [N, D]
template <typename T>
void expert_forward(const ExpertView<T>& expert, const MatmulTable& products, const T* x, int64_t rows,
                    const SavedActivations<T>& saved, T* y, ExpertWorkspace<T>& workspace);

/// What a backward pass writes; null where no gradient is asked for.
template <typename T>
struct ExpertGradients {
  T* dx = nullptr;                         ///< [N, D]
  T* dweights = nullptr;                   ///< [N]
  std::array<T*, kProjections> weights{};  ///< as the weights
};

/// Backward of `row_weights * y`. The gradient of a row's weight is <down(h), dy> = <h, dh> with dh = dy W_down, so the
/// down output is never needed. \param x, dy  [N, D]; row_weights [N]
template <typename T>
void expert_backward(const ExpertView<T>& expert, const MatmulTable& products, const T* x, const T* dy,
                     const T* row_weights, int64_t rows, const SavedActivations<T>& saved,
                     const ExpertGradients<T>& grads, ExpertWorkspace<T>& workspace);

}  // namespace evenkeel::kernels
