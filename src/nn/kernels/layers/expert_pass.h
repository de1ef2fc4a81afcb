/// \file  Computes the forward and backward pass of one expert (SwiGLU with LoRA on each projection) on raw memory.
/// Dimension names: N rows of the expert, D hidden, F width, R sum of the adapter ranks of the three projections.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nn/kernels/layers/lora_product.h"

namespace evenkeel::nn::kernels {

enum Projection : size_t { kGate, kUp, kDown, kProjections };
/// The LoRA branches of a projection. kAdapter is trained. kChange is the change of the base and gets no gradient.
enum LoraBranch : size_t { kAdapter, kChange, kLoraBranches };

/// The weights and LoRA factors of one expert.
template <typename T>
struct ExpertView {
  std::array<StoredMatrix, kProjections> weights;  ///< gate and up [F, D], down [D, F]
  std::array<std::array<LoraView<T>, kLoraBranches>, kProjections> lora;

  /// Returns D.
  int64_t hidden() const { return weights[kGate].in; }
  /// Returns F.
  int64_t width() const { return weights[kGate].out; }
  /// Returns the sum of the ranks of the three projections.
  int64_t rank_of(LoraBranch which) const {
    return lora[kGate][which].rank + lora[kUp][which].rank + lora[kDown][which].rank;
  }
};

/// The activations that the forward pass saves for the backward pass.
template <typename T>
struct SavedActivations {
  T *g = nullptr, *u = nullptr;  ///< [N, F], outputs of the gate and up projections
  T* xa = nullptr;               ///< [N, R], input times A^T of the adapter; columns of gate, up, down
};

/// Buffers of one call.
template <typename T>
struct ExpertWorkspace {
  MatmulScratch<T> product;
  LoraScratch<T> lora;
  Scratch<T> x, y, g, u, h, dh, du, dy, xa, change_xa, dy_b, change_dy_b;
  std::vector<int64_t> slots;
  std::vector<T> row_weights;
};

/// Computes y = down(silu(gate(x)) * up(x)), without the routing weight. Gate and up are one grouped matrix product
/// with x, and their factors A a second one.
/// \param x  [N, D]
/// \param saved  g and u are written, and xa if there is an adapter
/// \param y  [N, D]
template <typename T>
void expert_forward(const ExpertView<T>& expert, const MatmulTable& products, const T* x, int64_t rows,
                    const SavedActivations<T>& saved, T* y, ExpertWorkspace<T>& workspace);

/// The gradients of a backward pass. Null: not wanted.
template <typename T>
struct ExpertGradients {
  T* dx = nullptr;                         ///< [N, D]
  T* dweights = nullptr;                   ///< [N]
  std::array<T*, kProjections> weights{};  ///< shaped as the weights; overwritten
};

/// Computes the gradients of `row_weights * y`. The gradient of a row's weight is <down(h), dy> = <h, dh> with
/// dh = dy W_down, so the output of the down projection is not needed. LoRA gradients are added to the pointers in
/// `expert.lora`. \param x, dy  [N, D] \param row_weights  [N]
template <typename T>
void expert_backward(const ExpertView<T>& expert, const MatmulTable& products, const T* x, const T* dy,
                     const T* row_weights, int64_t rows, const SavedActivations<T>& saved,
                     const ExpertGradients<T>& grads, ExpertWorkspace<T>& workspace);

}  // namespace evenkeel::nn::kernels
