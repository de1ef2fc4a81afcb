#include "models/causal_lm.h"

#include <ATen/ATen.h>

#include <set>
#include <utility>

#include "base/plain/error.h"
#include "nn/dense/aten_rows.h"

namespace evenkeel::models {
namespace {

std::string_view target_of(std::string_view site) { return site.substr(site.rfind('.') + 1); }

/// Selects rows of a batch's hidden states.
at::Tensor rows_of(const at::Tensor& hidden_RD, const at::Tensor& rows_N, const ForwardOptions& options) {
  if (options.compute.engine != nn::Engine::kAten) return hidden_RD.index_select(0, rows_N);
  nn::aten::IndexUpload upload;
  const nn::aten::RowIndexUpload rows(nn::aten::numbers(rows_N), hidden_RD.size(0), upload);
  upload.send(hidden_RD.device());
  return nn::aten::gather_rows(hidden_RD, rows.sent(upload));
}

}  // namespace

at::Tensor CausalLm::logits(const at::Tensor& hidden_ND, const ForwardOptions& options) const {
  return nn::logits(hidden_ND, head(), options.compute, spec().logits_cap);
}

at::Tensor CausalLm::target_logprobs(const at::Tensor& hidden_ND, const at::Tensor& targets_N,
                                     const ForwardOptions& options) const {
  return nn::target_logprobs(hidden_ND, head(), targets_N, options.compute, spec().logits_cap);
}

nn::LossSum CausalLm::loss(const data::PackedBatch& batch, const ForwardOptions& options) const {
  return nn::cross_entropy(rows_of(hidden(batch, options), batch.target_rows, options), head(), batch.targets,
                           options.compute, spec().logits_cap);
}

std::vector<nn::LossSum> CausalLm::losses(const data::PackedBatch& batch, const ForwardOptions& options) const {
  std::vector<int64_t> counts;
  int64_t before = 0;
  for (const auto& end : batch.micro_batch_ends()) counts.push_back(end.targets - std::exchange(before, end.targets));
  return nn::cross_entropies(rows_of(hidden(batch, options), batch.target_rows, options), head(), batch.targets, counts,
                             options.compute, spec().logits_cap);
}

lora::Sites CausalLm::sites(std::span<const std::string> targets) const {
  const auto& all = all_sites();
  std::set<std::string_view> known;
  for (const auto& [name, site] : all) known.insert(target_of(name));
  lora::Sites chosen;
  for (const auto& target : targets) {
    const size_t before = chosen.size();
    for (const auto& [name, site] : all)
      if (target_of(name) == target) chosen.emplace(name, site);
    EK_CHECK(chosen.size() > before, kConfig, "target \"", target, "\" is named twice or is no linear of a ",
             spec().family, ", known: ", join(known));
  }
  return chosen;
}

}  // namespace evenkeel::models
