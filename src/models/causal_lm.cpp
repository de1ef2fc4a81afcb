#include "models/causal_lm.h"

#include <ATen/ATen.h>

#include "nn/linear.h"

namespace evenkeel {

at::Tensor CausalLm::logits(const at::Tensor& hidden_ND) const { return evenkeel::linear(hidden_ND, head()); }

LossSum CausalLm::loss(const PackedBatch& batch, const ForwardOptions& options) const {
  return cross_entropy(hidden(batch, options).index_select(0, batch.target_rows), head(), batch.targets);
}

}  // namespace evenkeel
