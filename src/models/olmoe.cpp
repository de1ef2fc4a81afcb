// OLMoE: RMSNorm, attention with QK-norm over the full width, and a sparse mixture of SwiGLU experts in every layer.
// Source: OLMoE (Muennighoff et al. 2024); layout and order of operations of transformers' OlmoeForCausalLM.
// Dimension names: T tokens, D hidden, F intermediate, E experts.

#include <ATen/ATen.h>

#include "base/error.h"
#include "models/decoder.h"
#include "models/families.h"
#include "nn/experts.h"
#include "nn/linear.h"

namespace evenkeel {
namespace {

constexpr DecoderKind kOlmoe{.family = "olmoe", .rms_norm = true, .qk_norm = true};

struct Mixture {
  at::Tensor router;  // [E, D]
  ExpertWeights experts;
};

class Olmoe final : public CausalLm {
 public:
  Olmoe(const ModelConfig& config, TensorSource& source)
      : decoder_(kOlmoe, config), norm_topk_prob_(config.flag_or("norm_topk_prob", false)) {
    read_experts(config);
    decoder_.take(source, [&](size_t layer, const std::string& prefix) {
      decoder_.spec.moe_layers.push_back(prefix + "mlp");
      mixtures_.push_back(take_mixture(decoder_.spec.moe_layers[layer], source));
    });
  }

  const ModelSpec& spec() const override { return decoder_.spec; }
  const at::Tensor& head() const override { return decoder_.head(); }
  const std::string& config_json() const override { return decoder_.config_json(); }
  Sites sites(std::span<const std::string> targets) const override { return decoder_.sites_of(targets); }

  at::Tensor hidden(const PackedBatch& batch, const ForwardOptions& options) const override {
    return decoder_.hidden(batch, options,
                           [&](size_t layer, const at::Tensor& x_TD) { return mixture(layer, x_TD, options); });
  }

  TensorMap parameters() const override;

 private:
  void read_experts(const ModelConfig& config);
  Mixture take_mixture(const std::string& prefix, TensorSource& source);
  at::Tensor mixture(size_t layer, const at::Tensor& x_TD, const ForwardOptions& options) const;

  Decoder decoder_;
  bool norm_topk_prob_;
  std::vector<Mixture> mixtures_;
};

void Olmoe::read_experts(const ModelConfig& config) {
  auto& spec = decoder_.spec;
  spec.num_experts = config.integer("num_experts");
  spec.top_k = config.integer("num_experts_per_tok");
  EK_CHECK(spec.top_k <= spec.num_experts, kCheckpoint, config.origin(), ": num_experts_per_tok ", spec.top_k,
           " is more than num_experts ", spec.num_experts);
}

/// \param prefix  "model.layers.0.mlp": also the key of these experts' routing statistics.
Mixture Olmoe::take_mixture(const std::string& prefix, TensorSource& source) {
  const int64_t hidden = spec().hidden_size, width = spec().intermediate_size, experts = spec().num_experts;
  const auto take = [&](std::string_view name, int64_t in, int64_t out) {
    decoder_.sites[concat(prefix, ".experts.", name)] = {experts, in, out, prefix};
    std::vector<at::Tensor> stack;
    for (int64_t e = 0; e < experts; ++e)
      stack.push_back(source.take(concat(prefix, ".experts.", e, ".", name, ".weight"), {out, in}));
    return stack;
  };
  decoder_.sites[prefix + ".gate"] = {0, hidden, experts, ""};
  Mixture mixture{.router = source.take(prefix + ".gate.weight", {experts, hidden}), .experts = {}};
  mixture.experts.gate = take("gate_proj", hidden, width);
  mixture.experts.up = take("up_proj", hidden, width);
  mixture.experts.down = take("down_proj", width, hidden);
  return mixture;
}

at::Tensor Olmoe::mixture(size_t layer, const at::Tensor& x_TD, const ForwardOptions& options) const {
  const FactorsBySite beside{options.adapters, options.base_change};
  const auto& prefix = spec().moe_layers[layer];
  RouterOptions router = options.router;
  if (router.top_k == 0) router.top_k = spec().top_k;
  const auto phi = router.modulation.find(prefix);
  const auto logits_TE = linear(x_TD, mixtures_[layer].router, beside.at(prefix, ".gate"));
  const auto routing =
      route(logits_TE, router, phi == router.modulation.end() ? at::Tensor() : phi->second, norm_topk_prob_);
  if (options.routing)
    (*options.routing)[prefix] = {logits_TE.requires_grad() ? logits_TE : at::Tensor(),
                                  at::bincount(routing.experts.reshape({-1}), {}, spec().num_experts), x_TD.size(0)};
  const auto expert = [&](std::string_view name) { return beside.at(prefix, concat(".experts.", name)); };
  return experts(x_TD, routing, mixtures_[layer].experts,
                 {expert("gate_proj"), expert("up_proj"), expert("down_proj")});
}

TensorMap Olmoe::parameters() const {
  auto all = decoder_.parameters();
  for (size_t layer = 0; layer < mixtures_.size(); ++layer) {
    const auto& prefix = spec().moe_layers[layer];
    const auto& [router, experts] = mixtures_[layer];
    all[prefix + ".gate.weight"] = router;
    for (size_t e = 0; e < experts.gate.size(); ++e) {
      all[concat(prefix, ".experts.", e, ".gate_proj.weight")] = experts.gate[e];
      all[concat(prefix, ".experts.", e, ".up_proj.weight")] = experts.up[e];
      all[concat(prefix, ".experts.", e, ".down_proj.weight")] = experts.down[e];
    }
  }
  return all;
}

}  // namespace

std::unique_ptr<CausalLm> make_olmoe(const ModelConfig& config, TensorSource& source) {
  return std::make_unique<Olmoe>(config, source);
}

}  // namespace evenkeel
