// Families that evenkeel does not ship, built of its leaves. Qwen3-MoE comes out of docs/tutorial-new-family.md.
#include "other_families.h"

#include "models/decoder.h"

namespace evenkeel {

ModelEntry qwen3_moe();  // out of the tutorial

namespace {

/// Biases beside queries, keys and values, a shared expert with a gate of its own, dense layers in between.
/// Source: Qwen2-MoE (Yang et al. 2024), transformers Qwen2MoeForCausalLM.
DecoderSpec qwen2_moe_decoder(const ModelConfig& config) {
  config.require("use_sliding_window", false);
  auto spec = read_decoder(config);
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-6);
  spec.attention.qkv_bias = config.flag_or("qkv_bias", true);
  auto mixture = read_mixture(config, {.width = "moe_intermediate_size"});
  mixture.gate = {.renormalise = config.flag_or("norm_topk_prob", false), .key = "norm_topk_prob"};
  mixture.shared = SharedExpert{.width = config.integer("shared_expert_intermediate_size"), .gated = true};
  const MlpSpec dense{.width = config.integer("intermediate_size")};
  const int64_t step = config.has("decoder_sparse_step") ? config.integer("decoder_sparse_step") : 1;
  if (step == 1) spec.model.gguf = {.architecture = "qwen2moe"};
  spec.feed_forward = [=](int64_t layer) -> FeedForwardSpec {
    if ((layer + 1) % step == 0) return mixture;
    return dense;
  };
  return spec;
}

/// Names of its own for block, experts and their linears; gates always renormalised.
/// Source: Mixtral (Jiang et al. 2024), transformers MixtralForCausalLM.
DecoderSpec mixtral_decoder(const ModelConfig& config) {
  config.require("sliding_window", nullptr);
  auto spec = read_decoder(config, "head_dim");
  spec.model.gguf = {.architecture = "llama", .interleaves_heads = true};
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-5);
  spec.names.feed_forward = "block_sparse_moe";
  auto mixture = read_mixture(config, {.experts = "num_local_experts"});
  mixture.gate.renormalise = true;
  mixture.names.expert = {.gate = "w1", .up = "w3", .down = "w2"};
  spec.feed_forward = in_every_layer(mixture);
  return spec;
}

/// Dense, with biases everywhere when its config says so, and GELU as well as SiLU.
/// Source: Llama (Touvron et al. 2023), transformers LlamaForCausalLM.
DecoderSpec llama_decoder(const ModelConfig& config) {
  auto spec = read_decoder(config, "head_dim");
  if (read_activation(config) == Activation::kSilu)
    spec.model.gguf = {.architecture = "llama", .interleaves_heads = true};
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-6);
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  spec.feed_forward = in_every_layer(MlpSpec{.width = config.integer("intermediate_size"),
                                             .activation = read_activation(config),
                                             .bias = config.flag_or("mlp_bias", false)});
  return spec;
}

}  // namespace

void add_other_families() {
  add_family(qwen3_moe());
  add_family(decoder_entry<qwen2_moe_decoder>(
      {.family = "qwen2_moe",
       .has_experts = true,
       .source = "Qwen2-MoE (Yang et al. 2024), transformers Qwen2MoeForCausalLM",
       .example = R"({"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 5,
                      "shared_expert_intermediate_size": 9, "decoder_sparse_step": 2, "qkv_bias": true})"}));
  add_family(decoder_entry<mixtral_decoder>({.family = "mixtral",
                                             .has_experts = true,
                                             .source = "Mixtral (Jiang et al. 2024), transformers MixtralForCausalLM",
                                             .example = R"({"num_local_experts": 6, "num_experts_per_tok": 3})"}));
  add_family(decoder_entry<llama_decoder>(
      {.family = "llama",
       .has_experts = false,
       .source = "Llama (Touvron et al. 2023), transformers LlamaForCausalLM",
       .example = R"({"attention_bias": true, "mlp_bias": true, "hidden_act": "gelu_pytorch_tanh"})"}));
}

}  // namespace evenkeel
