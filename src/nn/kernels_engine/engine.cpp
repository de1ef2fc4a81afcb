#include "nn/kernels_engine/engine.h"

#include <ATen/ATen.h>

#include "nn/attention/full_attention.h"
#include "nn/dense/linear.h"
#include "nn/kernels_engine/pass.h"

namespace evenkeel::nn {

std::unique_ptr<Pass> KernelsEngine::begin(const PassInput& input) const {
  return std::make_unique<KernelsPass>(input);
}

at::Tensor KernelsEngine::linear(const at::Tensor& x_NI, const FrozenWeight& w, const Compute& compute) const {
  return nn::linear(x_NI, w, {}, compute.products);
}

at::Tensor KernelsEngine::full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                                         std::span<const int64_t> offsets) const {
  // The number of sequences of a call changes the last bits, because it changes the work of the threads.
  return nn::full_attention(q_THP, k_THP, v_THP, offsets, /*most_at_once=*/1);
}

at::Tensor KernelsEngine::rows(const at::Tensor& hidden_RD, const at::Tensor& rows_N) const {
  return hidden_RD.index_select(0, rows_N);
}

at::Tensor KernelsEngine::logits(const at::Tensor& hidden_ND, const FrozenWeight& head, const Compute& compute,
                                 double soft_cap) const {
  return nn::logits(hidden_ND, head, compute.products, soft_cap);
}

std::vector<LossSum> KernelsEngine::cross_entropies(const at::Tensor& hidden_ND, const FrozenWeight& head,
                                                    const at::Tensor& targets_N, std::span<const int64_t> counts,
                                                    const Compute& compute, double soft_cap) const {
  return nn::cross_entropies(hidden_ND, head, targets_N, counts, compute.products, soft_cap);
}

at::Tensor KernelsEngine::target_logprobs(const at::Tensor& hidden_ND, const FrozenWeight& head,
                                          const at::Tensor& targets_N, const Compute& compute, double soft_cap) const {
  return nn::target_logprobs(hidden_ND, head, targets_N, compute.products, soft_cap);
}

}  // namespace evenkeel::nn
