// Llama: RMSNorm, grouped attention and a dense gated block in every layer. Mistral is the same without biases.
// Source: Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023); layout and order of operations of transformers'
// LlamaForCausalLM and MistralForCausalLM.
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

/// Completes what both families share. llama.cpp has one architecture for both, with SiLU
/// and without windows.
DecoderSpec with_gated_blocks(DecoderSpec spec, const ModelConfig& config, bool mlp_bias) {
  const auto activation = read_activation(config);
  spec.model.peft = lora::PeftFamily::kDense;
  if (activation == Activation::kSilu && spec.attention.windows.empty())
    spec.model.gguf = {.architecture = "llama", .interleaves_heads = true};
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-6);
  spec.feed_forward =
      in_every_layer(MlpSpec{.width = config.integer("intermediate_size"), .activation = activation, .bias = mlp_bias});
  return spec;
}

DecoderSpec llama_decoder(const ModelConfig& config) {
  auto spec = read_decoder(config, {.max_positions = 2048});
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  return with_gated_blocks(std::move(spec), config, config.flag_or("mlp_bias", false));
}

DecoderSpec mistral_decoder(const ModelConfig& config) {
  auto spec = read_decoder(
      config, {.max_positions = 131072, .kv_heads = 8, .window = {.layers = WindowRule::kAll, .otherwise = 4096}});
  return with_gated_blocks(std::move(spec), config, false);
}

}  // namespace

ModelEntry llama() {
  return decoder_entry<llama_decoder>({.family = "llama",
                                       .has_experts = false,
                                       .source = "Llama (Touvron et al. 2023), transformers LlamaForCausalLM",
                                       .example = R"({"attention_bias": true, "mlp_bias": true})"});
}

ModelEntry mistral() {
  return decoder_entry<mistral_decoder>({.family = "mistral",
                                         .has_experts = false,
                                         .source = "Mistral (Jiang et al. 2023), transformers MistralForCausalLM",
                                         .example = R"({"sliding_window": 3, "head_dim": 6})"});
}

}  // namespace evenkeel::models
