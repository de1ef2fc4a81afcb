/// \file  CUDA kernels that select experts and sort token-choices by expert. The references are the operators of
/// nn/aten_engine/routing.cpp and grouped.cpp. Dimension names: T tokens, E experts, K selected, S = T K slots. All
/// functions return nullopt if device_for() or device_for_indices() is null (kernels.h): use LibTorch's operators then.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace evenkeel::nn::cuda {

/// The selected experts and their weights.
struct Gates {
  at::Tensor weights_TK;        ///< float32
  at::Tensor experts_TK;        ///< int64, by descending logit, ties by ascending index, NaN first
  at::Tensor probabilities_TE;  ///< float32, softmax over all experts; undefined: the softmax is over the selected
};
/// Selects the top K experts by logits without phi. \param logits_TE  float32, contiguous
/// \param over_selected  true: the weights are a softmax over the selected experts; false: over all
std::optional<Gates> gates(const at::Tensor& logits_TE, int64_t top_k, bool over_selected);
/// Returns the gradient of the logits, [T, E] float32.
std::optional<at::Tensor> gates_backward(const at::Tensor& dweights_TK, const Gates& of, int64_t experts);

/// Token-choices sorted by expert (nn/aten_engine/grouped.h).
struct SortedChoices {
  at::Tensor order_S, token_S, place_S;  ///< int64
  at::Tensor ends_E;                     ///< int32
  at::Tensor idle_E;                     ///< bool
};
/// Sorts the token-choices by expert, and those of one expert by token. \param experts_TK  [T, K] int64, each below
/// `experts`
std::optional<SortedChoices> sorted_choices(const at::Tensor& experts_TK, int64_t experts);

}  // namespace evenkeel::nn::cuda
