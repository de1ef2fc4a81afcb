// GLM-4-MoE (GLM-4.5): RMSNorm, grouped attention that rotates the first half of each head, dense layers first and then
// sparse mixtures of SwiGLU experts beside shared experts, with DeepSeek-V3's sigmoid gates.
// Source: GLM-4.5 (Zhipu AI 2025); layout and order of operations of transformers' Glm4MoeForCausalLM.
#include "models/grouped_mixture.h"

namespace evenkeel::models {
namespace {

DecoderSpec glm4_moe_decoder(const ModelConfig& config) {
  auto spec = read_decoder(config, {.max_positions = 131072, .kv_heads = 8, .partial_rotary = 0.5});
  spec.unread_layers = read_prediction_layers(config, 1);
  spec.model.peft = lora::PeftFamily::kConvertedRouters;
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-5);
  spec.attention.qkv_bias = config.flag_or("attention_bias", false);
  if (config.flag_or("use_qk_norm", false)) spec.attention.qk_norm = QkNorm::kPerHead;
  auto mixture = read_grouped_mixture(config, "num_local_experts", {});
  set_sigmoid_gates(mixture, config.flag_or("norm_topk_prob", true));
  if (mixture.router.groups == mixture.router.kept_groups) spec.model.gguf = {.architecture = "glm4moe"};
  spec.feed_forward = behind_dense_layers(mixture, {.width = config.integer("intermediate_size")}, config, 1);
  return spec;
}

}  // namespace

ModelEntry glm4_moe() {
  return decoder_entry<glm4_moe_decoder>(
      {.family = "glm4_moe",
       .has_experts = true,
       .source = "GLM-4.5 (Zhipu AI 2025), transformers Glm4MoeForCausalLM",
       .example = R"({"head_dim": 8, "use_qk_norm": true, "attention_bias": true, "n_routed_experts": 6,
                      "num_experts_per_tok": 3, "moe_intermediate_size": 5, "routed_scaling_factor": 1.5})"});
}

}  // namespace evenkeel::models
