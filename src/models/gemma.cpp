// Gemma 3, its text part: norms with the factor 1 + weight before and behind every block, QK-norm per head, a scaled
// embedding, and layers with a sliding window, which have rotary positions of their own.
// Source: Gemma 3 (Gemma team 2025); layout and order of operations of transformers' Gemma3ForCausalLM.
#include <cmath>

#include "models/decoder.h"

namespace evenkeel::models {
namespace {

constexpr int64_t kHeadWidth = 256, kWindow = 4096;
constexpr double kTheta = 1e6, kLocalTheta = 1e4;

/// Returns the value of `key`, which must be above 0, or `otherwise` if it is absent or null.
double positive_or(const ModelConfig& config, std::string_view key, double otherwise) {
  const auto value = config.view().find(key);
  if (value)
    value->require(value->number() > 0 && std::isfinite(value->number()), " is ", shown(value->json()),
                   ", allowed: above 0");
  return value ? value->number() : otherwise;
}

/// llama.cpp's model has these fixed: the scale of scores, the activation, five layers with a window to one without.
bool is_known_to_llama_cpp(const DecoderSpec& spec, const ModelConfig& config, Activation activation) {
  const auto& local = *spec.local_rope;
  for (size_t layer = 0; layer < local.layers.size(); ++layer)
    if (local.layers[layer] != ((layer + 1) % 6 != 0)) return false;
  return activation == Activation::kGeluTanh && !spec.attention.o_bias && spec.model.logits_cap == 0 &&
         config.number_or("query_pre_attn_scalar", kHeadWidth) == static_cast<double>(spec.attention.head_width) &&
         local.rope.theta == kLocalTheta && local.rope.scaling.index() == 0 && spec.tied;
}

DecoderSpec gemma3_decoder(const ModelConfig& config) {
  config.require("use_bidirectional_attention", false);
  config.require("attn_logit_softcapping", nullptr);  // transformers has the key, but does not compute it
  auto spec = read_decoder(config, {.rope_theta = kTheta,
                                    .max_positions = 131072,
                                    .kv_heads = 4,
                                    .head_width = kHeadWidth,
                                    .window = {.layers = WindowRule::kByPattern, .otherwise = kWindow},
                                    .local_theta = kLocalTheta,
                                    .tied = true});
  spec.model.peft = lora::PeftFamily::kDense;
  spec.model.logits_cap = positive_or(config, "final_logit_softcapping", 0);
  spec.norm = {.kind = NormKind::kRmsPlusOne, .eps = config.number_or("rms_norm_eps", 1e-6)};
  spec.names.attention_output_norm = "post_attention_layernorm";
  spec.names.feed_forward_norm = "pre_feedforward_layernorm";
  spec.names.feed_forward_output_norm = "post_feedforward_layernorm";
  spec.scales = {.embedding = std::sqrt(static_cast<double>(spec.model.hidden_size)), .rounds_embedding = true};
  spec.attention.qk_norm = QkNorm::kPerHead;
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  spec.attention.scale = 1 / std::sqrt(positive_or(config, "query_pre_attn_scalar", kHeadWidth));
  const auto activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  if (is_known_to_llama_cpp(spec, config, activation)) spec.model.gguf = {.architecture = "gemma3"};
  spec.feed_forward = in_every_layer(MlpSpec{.width = config.integer("intermediate_size"), .activation = activation});
  return spec;
}

}  // namespace

ModelEntry gemma3_text() {
  return decoder_entry<gemma3_decoder>(
      {.family = "gemma3_text",
       .has_experts = false,
       .source = "Gemma 3 (Gemma team 2025), transformers Gemma3ForCausalLM",
       .example = R"({"head_dim": 6, "query_pre_attn_scalar": 9, "sliding_window": 3, "sliding_window_pattern": 2,
                      "rope_local_base_freq": 50.0, "final_logit_softcapping": 4.0})",
       .norms = 0});
}

}  // namespace evenkeel::models
