// OLMo: LayerNorm without parameters, attention and a dense SwiGLU block in every layer.
// Source: OLMo (Groeneveld et al. 2024); layout and order of operations of transformers' OlmoForCausalLM.
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

DecoderSpec olmo_decoder(const ModelConfig& config) {
  config.require("hidden_act", "silu");
  auto spec = read_decoder(config, {.max_positions = 2048});
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  if (!spec.attention.o_bias) spec.model.gguf = {.architecture = "olmo", .interleaves_heads = true};
  spec.model.peft = lora::PeftFamily::kDense;
  spec.norm = {.kind = NormKind::kLayerNorm, .eps = 1e-5};
  if (config.has("clip_qkv")) spec.attention.clip = config.number_or("clip_qkv", 0);
  spec.feed_forward = in_every_layer(MlpSpec{.width = config.integer("intermediate_size")});
  return spec;
}

}  // namespace

ModelEntry olmo() {
  return decoder_entry<olmo_decoder>({.family = "olmo",
                                      .has_experts = false,
                                      .source = "OLMo (Groeneveld et al. 2024), transformers OlmoForCausalLM",
                                      .example = R"({"tie_word_embeddings": true})"});
}

}  // namespace evenkeel::models
