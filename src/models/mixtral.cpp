// Mixtral: RMSNorm, attention with grouped key heads, and a sparse mixture of SwiGLU experts in every layer, whose
// gates are a softmax over the selected experts.
// Source: Mixtral (Jiang et al. 2024); layout and order of operations of transformers' MixtralForCausalLM.
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

DecoderSpec mixtral_decoder(const ModelConfig& config) {
  config.require("router_jitter_noise", 0.0);
  auto spec = read_decoder(
      config, {.rope_theta = 1e6, .max_positions = 131072, .kv_heads = 8, .window = {.layers = WindowRule::kAll}});
  if (spec.attention.windows.empty()) spec.model.gguf = {.architecture = "llama", .interleaves_heads = true};
  spec.model.peft = lora::PeftFamily::kConverted;
  spec.norm = {.kind = NormKind::kRms, .eps = config.number_or("rms_norm_eps", 1e-5)};
  spec.names.feed_forward = "block_sparse_moe";
  auto mixture = read_mixture(config);
  mixture.gate = {.renormalise = true, .servers = true};
  mixture.names.expert = {.gate = "w1", .up = "w3", .down = "w2"};
  spec.feed_forward = in_every_layer(mixture);
  return spec;
}

}  // namespace

ModelEntry mixtral() {
  return decoder_entry<mixtral_decoder>({.family = "mixtral",
                                         .has_experts = true,
                                         .source = "Mixtral (Jiang et al. 2024), transformers MixtralForCausalLM",
                                         .example = R"({"num_local_experts": 6, "num_experts_per_tok": 3})"});
}

}  // namespace evenkeel::models
