// OLMoE: RMSNorm, attention with QK-norm over the full width, and a sparse mixture of SwiGLU experts in every layer.
// Source: OLMoE (Muennighoff et al. 2024); layout and order of operations of transformers' OlmoeForCausalLM.
#include "models/decoder.h"

namespace evenkeel {
namespace {

DecoderSpec olmoe_decoder(const ModelConfig& config) {
  config.require("attention_bias", false);
  auto spec = read_decoder(config);
  spec.norm = {.kind = NormKind::kRms, .eps = config.number_or("rms_norm_eps", 1e-5)};
  spec.attention.qk_norm = QkNorm::kFullWidth;
  if (config.has("clip_qkv"))
    spec.attention.clip = config.number_or("clip_qkv", 0);
  else
    spec.model.gguf = {.architecture = "olmoe"};  // which clips nothing
  auto mixture = read_mixture(config);
  mixture.gate = {.renormalise = config.flag_or("norm_topk_prob", false), .key = "norm_topk_prob", .servers = false};
  spec.feed_forward = in_every_layer(mixture);
  return spec;
}

}  // namespace

ModelEntry olmoe() {
  return decoder_entry<olmoe_decoder>({.family = "olmoe",
                                       .has_experts = true,
                                       .source = "OLMoE (Muennighoff et al. 2024), transformers OlmoeForCausalLM",
                                       .example = R"({"num_experts": 6, "num_experts_per_tok": 3})"});
}

}  // namespace evenkeel
