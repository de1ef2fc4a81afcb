#include "nn/aten_engine/choices.h"

#include <ATen/ATen.h>

#include "nn/moe/marked.h"

namespace evenkeel::nn::aten {

void count_choices(std::span<const std::string> layers, const at::Tensor& choices_LRK, const RowIndex& copies,
                   int64_t experts, const data::PackedBatch& batch, std::span<RoutingByLayer> into) {
  auto chosen_LTE = marked(choices_LRK, experts);
  if (copies.defined()) chosen_LTE = chosen_LTE.index_select(1, copies.from_N);
  auto micro_batch = into.begin();
  int64_t begin = 0;
  for (const auto& end : batch.micro_batch_ends()) {
    const auto counts_LE = chosen_LTE.slice(1, begin, end.tokens).sum(1).unbind();
    for (size_t l = 0; l < layers.size(); ++l) (*micro_batch)[layers[l]].counts = counts_LE[l];
    ++micro_batch, begin = end.tokens;
  }
}

}  // namespace evenkeel::nn::aten
