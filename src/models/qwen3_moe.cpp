// Qwen3-MoE: RMSNorm, attention with QK-norm per head, and a sparse mixture of SwiGLU experts in every n-th layer but
// those that are named dense.
// Source: Qwen3 (Yang et al. 2025); layout and order of operations of transformers' Qwen3MoeForCausalLM.
#include <algorithm>

#include "models/decoder.h"

namespace evenkeel::models {
namespace {

/// Returns the indices of dense layers in ascending order.
std::vector<int64_t> dense_layers(const ModelConfig& config) {
  const auto named = config.view().find("mlp_only_layers");
  auto layers = named ? named->integers() : std::vector<int64_t>();
  std::sort(layers.begin(), layers.end());
  return layers;
}

auto in_sparse_layers(const MixtureSpec& sparse, const MlpSpec& dense, const ModelConfig& config) {
  const int64_t step = config.integer_or("decoder_sparse_step", 1);
  EK_CHECK(step > 0, kCheckpoint, config.origin(), ": decoder_sparse_step is ", step, ", allowed: 1 or more");
  return [=, only = dense_layers(config)](int64_t layer) -> FeedForwardSpec {
    const bool named = std::binary_search(only.begin(), only.end(), layer);
    if (named || (layer + 1) % step != 0) return dense;
    return sparse;
  };
}

DecoderSpec qwen3_moe_decoder(const ModelConfig& config) {
  constexpr WindowRule kWindow{.layers = WindowRule::kAll, .otherwise = 4096, .needs_consent = true};
  auto spec = read_decoder(config, {.max_positions = 32768, .kv_heads = 4, .window = kWindow});
  spec.model.peft = lora::PeftFamily::kConverted;
  spec.norm = {.kind = NormKind::kRms, .eps = config.number_or("rms_norm_eps", 1e-6)};
  spec.attention.qk_norm = QkNorm::kPerHead;
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  auto sparse = read_mixture(config, {.width = "moe_intermediate_size"});
  sparse.gate = {.renormalise = config.flag_or("norm_topk_prob", false), .key = "norm_topk_prob"};
  spec.feed_forward = in_sparse_layers(sparse, {.width = config.integer("intermediate_size")}, config);
  // llama.cpp's model has no dense layers, biases or windows.
  if (dense_layers(config).empty() && config.integer_or("decoder_sparse_step", 1) == 1 && !spec.attention.o_bias &&
      spec.attention.windows.empty())
    spec.model.gguf = {.architecture = "qwen3moe"};
  return spec;
}

}  // namespace

ModelEntry qwen3_moe() {
  return decoder_entry<qwen3_moe_decoder>(
      {.family = "qwen3_moe",
       .has_experts = true,
       .source = "Qwen3-MoE (Yang et al. 2025), transformers Qwen3MoeForCausalLM",
       .example = R"({"head_dim": 6, "moe_intermediate_size": 5, "num_experts": 6, "num_experts_per_tok": 3,
                      "norm_topk_prob": true, "decoder_sparse_step": 2})"});
}

}  // namespace evenkeel::models
