#include "models/causal_lm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/plain/error.h"
#include "nn/engines/engine_of.h"

namespace evenkeel::models {
namespace {

std::string_view target_of(std::string_view site) { return site.substr(site.rfind('.') + 1); }

/// Returns the names that `target` stands for in a model with these names. In a model with latent attention, q_proj,
/// k_proj and v_proj stand for the linears that make queries, and keys and values.
std::vector<std::string_view> names_of(std::string_view target, const std::set<std::string_view>& known) {
  if (known.contains(target) || !known.contains("kv_b_proj")) return {target};
  if (target == "q_proj") return {"q_a_proj", "q_b_proj"};
  if (target == "k_proj" || target == "v_proj") return {"kv_a_proj_with_mqa", "kv_b_proj"};
  return {target};
}

}  // namespace

at::Tensor CausalLm::logits(const at::Tensor& hidden_ND, const ForwardOptions& options) const {
  return nn::engine_of(options.compute).logits(hidden_ND, head(), options.compute, spec().logits_cap);
}

at::Tensor CausalLm::target_logprobs(const at::Tensor& hidden_ND, const at::Tensor& targets_N,
                                     const ForwardOptions& options) const {
  return nn::engine_of(options.compute)
      .target_logprobs(hidden_ND, head(), targets_N, options.compute, spec().logits_cap);
}

nn::LossSum CausalLm::loss(const data::PackedBatch& batch, const ForwardOptions& options) const {
  const std::array counts{batch.targets.size(0)};
  return losses_of(target_hidden(batch, options), batch, counts, options).front();
}

std::vector<nn::LossSum> CausalLm::losses(const data::PackedBatch& batch, const ForwardOptions& options) const {
  return losses(target_hidden(batch, options), batch, options);
}

at::Tensor CausalLm::target_hidden(const data::PackedBatch& batch, const ForwardOptions& options) const {
  return nn::engine_of(options.compute).rows(hidden(batch, options), batch.target_rows);
}

std::vector<nn::LossSum> CausalLm::losses(const at::Tensor& target_hidden_ND, const data::PackedBatch& batch,
                                          const ForwardOptions& options) const {
  std::vector<int64_t> counts;
  int64_t before = 0;
  for (const auto& end : batch.micro_batch_ends()) counts.push_back(end.targets - std::exchange(before, end.targets));
  return losses_of(target_hidden_ND, batch, counts, options);
}

/// Returns the summed losses of consecutive groups of targets.
std::vector<nn::LossSum> CausalLm::losses_of(const at::Tensor& target_hidden_ND, const data::PackedBatch& batch,
                                             std::span<const int64_t> counts, const ForwardOptions& options) const {
  return nn::engine_of(options.compute)
      .cross_entropies(target_hidden_ND, head(), batch.targets, counts, options.compute, spec().logits_cap);
}

lora::Sites CausalLm::sites(std::span<const std::string> targets) const {
  const auto& all = all_sites();
  std::set<std::string_view> known;
  for (const auto& [name, site] : all) known.insert(target_of(name));
  lora::Sites chosen;
  std::set<std::string_view> named;
  for (const auto& target : targets) {
    const auto wanted = names_of(target, known);
    size_t found = 0;
    for (const auto& [name, site] : all)
      if (std::find(wanted.begin(), wanted.end(), target_of(name)) != wanted.end()) ++found, chosen.emplace(name, site);
    EK_CHECK(found > 0 && named.insert(target).second, kConfig, "target \"", target,
             "\" is named twice or is no linear of a ", spec().family, ", known: ", join(known));
  }
  return chosen;
}

}  // namespace evenkeel::models
