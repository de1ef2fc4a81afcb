// Gemma 2 and the text part of Gemma 3: norms with the factor 1 + weight before and behind every block, and a scaled
// embedding. Gemma 2 has soft caps of scores and logits, and a window in every other layer. Gemma 3 has QK-norm per
// head, and other rotary positions in layers with a window.
// Source: Gemma 2 (Gemma team 2024), Gemma 3 (Gemma team 2025); layout and order of operations of transformers'
// Gemma2ForCausalLM (attention "eager") and Gemma3ForCausalLM.
#include <cmath>

#include "models/decoder.h"

namespace evenkeel::models {
namespace {

constexpr int64_t kHeadWidth = 256, kWindow = 4096;
constexpr double kTheta3 = 1e6, kLocalTheta3 = 1e4;

/// Returns the value of `key`, which must be above 0; `otherwise` if it is absent, 0 if it is null.
double positive_or(const ModelConfig& config, std::string_view key, double otherwise) {
  if (!config.view().json().contains(key)) return otherwise;
  const auto value = config.view().find(key);
  if (!value) return 0;
  value->require(value->number() > 0 && std::isfinite(value->number()), " is ", shown(value->json()),
                 ", allowed: above 0");
  return value->number();
}

/// Returns the factor of scores.
double read_scale(const ModelConfig& config) {
  const double scalar = positive_or(config, "query_pre_attn_scalar", kHeadWidth);
  EK_CHECK(scalar > 0, kCheckpoint, config.origin(), ": query_pre_attn_scalar is null, allowed: above 0");
  return 1 / std::sqrt(scalar);
}

/// Reads what both families share.
DecoderSpec read_gemma(const ModelConfig& config, const DecoderDefaults& defaults) {
  config.require("use_bidirectional_attention", false);
  auto spec = read_decoder(config, defaults);
  spec.model.peft = lora::PeftFamily::kDense;
  spec.norm = {.kind = NormKind::kRmsPlusOne, .eps = config.number_or("rms_norm_eps", 1e-6)};
  spec.names.attention_output_norm = "post_attention_layernorm";
  spec.names.feed_forward_norm = "pre_feedforward_layernorm";
  spec.names.feed_forward_output_norm = "post_feedforward_layernorm";
  spec.scales = {.embedding = std::sqrt(static_cast<double>(spec.model.hidden_size)), .rounds_embedding = true};
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  spec.attention.scale = read_scale(config);
  spec.feed_forward =
      in_every_layer(MlpSpec{.width = config.integer("intermediate_size"),
                             .activation = read_activation(config, "hidden_activation", "gelu_pytorch_tanh")});
  return spec;
}

/// llama.cpp's models have these fixed: the scale of scores, the activation, and which layers have a window: all but
/// each n-th.
bool is_known_to_llama_cpp(const DecoderSpec& spec, const ModelConfig& config, const std::vector<bool>& sliding,
                           size_t n) {
  for (size_t layer = 0; layer < sliding.size(); ++layer)
    if (sliding[layer] != ((layer + 1) % n != 0)) return false;
  return read_activation(config, "hidden_activation", "gelu_pytorch_tanh") == Activation::kGeluTanh &&
         !spec.attention.o_bias && spec.tied &&
         config.number_or("query_pre_attn_scalar", kHeadWidth) == static_cast<double>(spec.attention.head_width);
}

DecoderSpec gemma2_decoder(const ModelConfig& config) {
  constexpr WindowRule kEveryOther{.layers = WindowRule::kByPattern, .otherwise = kWindow, .pattern = 2};
  auto spec = read_gemma(
      config, {.max_positions = 8192, .kv_heads = 4, .head_width = kHeadWidth, .window = kEveryOther, .tied = true});
  spec.model.logits_cap = positive_or(config, "final_logit_softcapping", 30);
  spec.attention.soft_cap = positive_or(config, "attn_logit_softcapping", 50);
  const bool capped = spec.model.logits_cap > 0 && spec.attention.soft_cap > 0;
  if (capped && is_known_to_llama_cpp(spec, config, read_sliding_layers(config, spec.model, kEveryOther), 2))
    spec.model.gguf = {.architecture = "gemma2"};
  return spec;
}

DecoderSpec gemma3_decoder(const ModelConfig& config) {
  config.require("attn_logit_softcapping", nullptr);  // transformers has the key, but does not compute it
  auto spec = read_gemma(config, {.rope_theta = kTheta3,
                                  .max_positions = 131072,
                                  .kv_heads = 4,
                                  .head_width = kHeadWidth,
                                  .window = {.layers = WindowRule::kByPattern, .otherwise = kWindow},
                                  .local_theta = kLocalTheta3,
                                  .tied = true});
  spec.model.logits_cap = positive_or(config, "final_logit_softcapping", 0);
  spec.attention.qk_norm = QkNorm::kPerHead;
  const auto& local = *spec.local_rope;
  const bool plain = spec.model.logits_cap == 0 && local.rope.theta == kLocalTheta3 && local.rope.scaling.index() == 0;
  if (plain && is_known_to_llama_cpp(spec, config, local.layers, 6)) spec.model.gguf = {.architecture = "gemma3"};
  return spec;
}

}  // namespace

ModelEntry gemma2() {
  return decoder_entry<gemma2_decoder>(
      {.family = "gemma2",
       .has_experts = false,
       .source = "Gemma 2 (Gemma team 2024), transformers Gemma2ForCausalLM",
       .example = R"({"head_dim": 6, "query_pre_attn_scalar": 9, "sliding_window": 3, "final_logit_softcapping": 4.0,
                      "attn_logit_softcapping": 1.5})",
       .norms = 0});
}

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
