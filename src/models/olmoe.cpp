// OLMoE: RMSNorm, attention with QK-norm over the full width, and a sparse mixture of SwiGLU experts in every layer.
// Source: OLMoE (Muennighoff et al. 2024); layout and order of operations of transformers' OlmoeForCausalLM.
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

/// Checks that the total width of the heads equals hidden_size, because the QK-norm has that width.
void require_heads_of_hidden_size(const DecoderSpec& spec, const ModelConfig& config) {
  const auto& heads = spec.attention;
  EK_CHECK(heads.heads * heads.head_width == spec.model.hidden_size, kCheckpoint, config.origin(), ": head_dim ",
           heads.head_width, " of ", heads.heads, " heads, supported: hidden_size ", spec.model.hidden_size, " in all");
}

DecoderSpec olmoe_decoder(const ModelConfig& config) {
  auto spec = read_decoder(config);
  require_heads_of_hidden_size(spec, config);
  spec.model.peft = lora::PeftFamily::kConverted;
  spec.norm = {.kind = NormKind::kRms, .eps = config.number_or("rms_norm_eps", 1e-5)};
  spec.attention.qk_norm = QkNorm::kFullWidth;
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  if (config.has("clip_qkv"))
    spec.attention.clip = config.number_or("clip_qkv", 0);
  else if (!spec.attention.o_bias)
    spec.model.gguf = {.architecture = "olmoe"};  // llama.cpp's model has no clipping and no biases
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

}  // namespace evenkeel::models
