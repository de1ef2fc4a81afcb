// Qwen2 and Qwen3: RMSNorm, grouped attention and a dense gated block in every layer. Qwen2 has biases of queries, keys
// and values. Qwen3 normalises each head of queries and keys instead.
// Source: Qwen2 (Yang et al. 2024), Qwen3 (Yang et al. 2025); layout and order of operations of transformers'
// Qwen2ForCausalLM and Qwen3ForCausalLM.
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

/// Reads what both families share.
DecoderSpec read_qwen(const ModelConfig& config, int64_t head_width) {
  constexpr WindowRule kWindow{.layers = WindowRule::kByTypes, .otherwise = 4096, .needs_consent = true};
  auto spec =
      read_decoder(config, {.max_positions = 32768, .kv_heads = 32, .head_width = head_width, .window = kWindow});
  spec.model.peft = lora::PeftFamily::kDense;
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-6);
  spec.feed_forward =
      in_every_layer(MlpSpec{.width = config.integer("intermediate_size"), .activation = read_activation(config)});
  return spec;
}

/// llama.cpp's models have SiLU and no windows.
bool is_known_to_llama_cpp(const DecoderSpec& spec, const ModelConfig& config) {
  return read_activation(config) == Activation::kSilu && spec.attention.windows.empty();
}

DecoderSpec qwen2_decoder(const ModelConfig& config) {
  auto spec = read_qwen(config, 0);
  spec.attention.qkv_bias = true;
  if (is_known_to_llama_cpp(spec, config)) spec.model.gguf = {.architecture = "qwen2"};
  return spec;
}

DecoderSpec qwen3_decoder(const ModelConfig& config) {
  auto spec = read_qwen(config, 128);
  spec.attention.qk_norm = QkNorm::kPerHead;
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  if (is_known_to_llama_cpp(spec, config) && !spec.attention.o_bias) spec.model.gguf = {.architecture = "qwen3"};
  return spec;
}

}  // namespace

ModelEntry qwen2() {
  return decoder_entry<qwen2_decoder>({.family = "qwen2",
                                       .has_experts = false,
                                       .source = "Qwen2 (Yang et al. 2024), transformers Qwen2ForCausalLM",
                                       .example = R"({"tie_word_embeddings": true})"});
}

ModelEntry qwen3() {
  return decoder_entry<qwen3_decoder>({.family = "qwen3",
                                       .has_experts = false,
                                       .source = "Qwen3 (Yang et al. 2025), transformers Qwen3ForCausalLM",
                                       .example = R"({"head_dim": 6, "tie_word_embeddings": true})"});
}

}  // namespace evenkeel::models
