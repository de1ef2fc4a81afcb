// DeepSeek-V2 and DeepSeek-V3: RMSNorm, latent attention, dense layers first and then sparse mixtures of SwiGLU experts
// beside shared experts. V2 scores experts by a softmax, V3 by sigmoids with a bias of the selection. Both can limit
// the selection of a token to groups of experts.
// Source: DeepSeek-V2 (2024), DeepSeek-V3 (2024); layout and order of operations of transformers' DeepseekV2ForCausalLM
// and DeepseekV3ForCausalLM.
#include "models/grouped_mixture.h"
#include "models/rope_config.h"

namespace evenkeel::models {
namespace {

int64_t width_or(const ModelConfig& config, std::string_view key, int64_t otherwise) {
  return config.view().json().contains(key) ? config.integer(key) : otherwise;
}

LatentAttentionSpec read_latent_attention(const ModelConfig& config) {
  LatentAttentionSpec spec{.heads = config.integer("num_attention_heads"),
                           .kv_rank = width_or(config, "kv_lora_rank", 512),
                           .plain_width = width_or(config, "qk_nope_head_dim", 128),
                           .rotary_width = width_or(config, "qk_rope_head_dim", 64),
                           .value_width = width_or(config, "v_head_dim", 128),
                           .bias = config.flag_or("attention_bias", false),
                           .scale_factor = read_latent_scale(config)};
  const bool has_key = config.view().json().contains("q_lora_rank");
  spec.query_rank = config.has("q_lora_rank") ? config.integer("q_lora_rank") : has_key ? 0 : 1536;
  EK_CHECK(spec.rotary_width % 2 == 0, kCheckpoint, config.origin(), ": qk_rope_head_dim ", spec.rotary_width,
           " must be even");
  return spec;
}

/// Reads everything but the mixtures.
DecoderSpec read_deepseek(const ModelConfig& config, int64_t max_positions) {
  config.require("moe_layer_freq", 1);
  const auto latent = read_latent_attention(config);
  auto spec =
      read_decoder(config, {.max_positions = max_positions, .head_width = latent.rotary_width, .own_head_width = true});
  EK_CHECK(spec.attention.kv_heads == latent.heads, kCheckpoint, config.origin(), ": num_key_value_heads is ",
           spec.attention.kv_heads, ", supported: the ", latent.heads, " of num_attention_heads");
  spec.latent_attention = latent;
  spec.model.peft = lora::PeftFamily::kConvertedRouters;
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-6);
  return spec;
}

MixtureSpec read_v2_mixture(const ModelConfig& config) {
  config.require("scoring_func", "softmax");
  config.require("mlp_bias", false);
  config.require("norm_topk_prob", false);  // transformers ignores the key, other programs do not
  const auto method = config.string_or("topk_method", "greedy");
  EK_CHECK(method == "greedy" || method == "group_limited_greedy", kCheckpoint, config.origin(), ": topk_method is \"",
           method, "\", supported: greedy, group_limited_greedy");
  return read_grouped_mixture(config, "num_experts",
                              {.grouped = method != "greedy", .groups = 0, .kept_groups = 0, .shared = 2});
}

DecoderSpec deepseek_v2_decoder(const ModelConfig& config) {
  auto spec = read_deepseek(config, 2048);
  const MlpSpec dense{.width = config.integer("intermediate_size")};
  spec.feed_forward = behind_dense_layers(read_v2_mixture(config), dense, config, 0);
  return spec;
}

DecoderSpec deepseek_v3_decoder(const ModelConfig& config) {
  config.require("scoring_func", "sigmoid");
  config.require("topk_method", "noaux_tc");
  auto spec = read_deepseek(config, 4096);
  config.require("head_dim", spec.latent_attention->rotary_width);
  spec.unread_layers = read_prediction_layers(config, 1);
  spec.latent_attention->adjacent_pairs = config.flag_or("rope_interleave", true);
  auto mixture = read_grouped_mixture(config, "num_local_experts", {.groups = 8, .kept_groups = 4, .scale = 2.5});
  set_sigmoid_gates(mixture, config.flag_or("norm_topk_prob", true));
  spec.feed_forward = behind_dense_layers(mixture, {.width = config.integer("intermediate_size")}, config, 3);
  return spec;
}

}  // namespace

ModelEntry deepseek_v2() {
  return decoder_entry<deepseek_v2_decoder>(
      {.family = "deepseek_v2",
       .has_experts = true,
       .source = "DeepSeek-V2 (2024), transformers DeepseekV2ForCausalLM",
       .example =
           R"({"kv_lora_rank": 5, "q_lora_rank": null, "qk_nope_head_dim": 4, "qk_rope_head_dim": 6, "v_head_dim": 8,
                      "num_key_value_heads": null, "n_routed_experts": 6, "num_experts_per_tok": 3,
                      "moe_intermediate_size": 5, "n_shared_experts": 2, "first_k_dense_replace": 1,
                      "routed_scaling_factor": 1.5})"});
}

ModelEntry deepseek_v3() {
  return decoder_entry<deepseek_v3_decoder>(
      {.family = "deepseek_v3",
       .has_experts = true,
       .source = "DeepSeek-V3 (2024), transformers DeepseekV3ForCausalLM",
       .example =
           R"({"kv_lora_rank": 5, "q_lora_rank": 7, "qk_nope_head_dim": 4, "qk_rope_head_dim": 6, "v_head_dim": 14,
                      "num_key_value_heads": null, "n_routed_experts": 6, "num_experts_per_tok": 3,
                      "moe_intermediate_size": 5, "n_group": 2, "topk_group": 2, "first_k_dense_replace": 1})"});
}

}  // namespace evenkeel::models
