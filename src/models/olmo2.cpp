// OLMo 2: Llama's blocks with the norms behind attention and feed-forward blocks, and QK-norm over all heads together.
// Source: OLMo 2 (OLMo team 2025); layout and order of operations of transformers' Olmo2ForCausalLM.
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

DecoderSpec olmo2_decoder(const ModelConfig& config) {
  auto spec = read_decoder(config, {.max_positions = 2048});
  spec.model.peft = lora::PeftFamily::kDense;
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-5);
  spec.names.put_norms_behind_blocks();
  spec.attention.qk_norm = QkNorm::kFullWidth;
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  const auto activation = read_activation(config);
  if (activation == Activation::kSilu && !spec.attention.o_bias) spec.model.gguf = {.architecture = "olmo2"};
  spec.feed_forward = in_every_layer(MlpSpec{.width = config.integer("intermediate_size"), .activation = activation});
  return spec;
}

}  // namespace

ModelEntry olmo2() {
  return decoder_entry<olmo2_decoder>({.family = "olmo2",
                                       .has_experts = false,
                                       .source = "OLMo 2 (OLMo team 2025), transformers Olmo2ForCausalLM",
                                       .example = R"({"tie_word_embeddings": true})"});
}

}  // namespace evenkeel::models
