// Defines families that evenkeel does not ship. Qwen2-MoE is generated from docs/tutorial-new-family.md.
#include "other_families.h"

#include "models/decoder.h"

namespace evenkeel::models {
ModelEntry qwen2_moe();  // from the tutorial
}

namespace evenkeel {

namespace {

/// A dense family, with optional biases, and GELU or SiLU.
/// Source: Llama (Touvron et al. 2023), transformers LlamaForCausalLM.
models::DecoderSpec llama_decoder(const models::ModelConfig& config) {
  auto spec = models::read_decoder(config);
  if (models::read_activation(config) == models::Activation::kSilu)
    spec.model.gguf = {.architecture = "llama", .interleaves_heads = true};
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-6);
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  spec.feed_forward = models::in_every_layer(models::MlpSpec{.width = config.integer("intermediate_size"),
                                                             .activation = models::read_activation(config),
                                                             .bias = config.flag_or("mlp_bias", false)});
  return spec;
}

}  // namespace

void add_other_families() {
  models::add_family(models::qwen2_moe());
  models::add_family(models::decoder_entry<llama_decoder>(
      {.family = "llama",
       .has_experts = false,
       .source = "Llama (Touvron et al. 2023), transformers LlamaForCausalLM",
       .example = R"({"attention_bias": true, "mlp_bias": true, "hidden_act": "gelu_pytorch_tanh"})"}));
}

}  // namespace evenkeel
