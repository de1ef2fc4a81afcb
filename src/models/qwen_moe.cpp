// Qwen2-MoE and Qwen3-MoE: RMSNorm, grouped attention, and a sparse mixture of SwiGLU experts in every n-th layer but
// those that are named dense. Qwen2-MoE has biases of queries, keys and values, and a shared expert with a gate.
// Qwen3-MoE normalises each head of queries and keys instead.
// Source: Qwen2 (Yang et al. 2024), Qwen3 (Yang et al. 2025); layout and order of operations of transformers'
// Qwen2MoeForCausalLM and Qwen3MoeForCausalLM.
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

/// Returns whether every layer is sparse and attends to the whole text, as in llama.cpp's models.
bool has_mixtures_of_llama_cpp(const DecoderSpec& spec, const ModelConfig& config) {
  return dense_layers(config).empty() && config.integer_or("decoder_sparse_step", 1) == 1 &&
         spec.attention.windows.empty();
}

/// Completes what both families share. \param in_llama_cpp  GateRule::servers, if llama.cpp has the model
DecoderSpec with_mixtures(DecoderSpec spec, const ModelConfig& config, std::optional<SharedExpert> shared,
                          bool in_llama_cpp) {
  spec.model.peft = lora::PeftFamily::kConverted;
  spec.norm = {.kind = NormKind::kRms, .eps = config.number_or("rms_norm_eps", 1e-6)};
  auto sparse = read_mixture(config, {.width = "moe_intermediate_size"});
  sparse.gate = {.renormalise = config.flag_or("norm_topk_prob", false), .key = "norm_topk_prob"};
  if (!spec.model.gguf.architecture.empty()) {
    sparse.gate.servers = in_llama_cpp;
    sparse.gate.only_llama_cpp = true;
  }
  sparse.shared = std::move(shared);
  spec.feed_forward = in_sparse_layers(sparse, {.width = config.integer("intermediate_size")}, config);
  return spec;
}

DecoderSpec qwen2_moe_decoder(const ModelConfig& config) {
  constexpr WindowRule kWindow{.layers = WindowRule::kEvenOfFirst, .otherwise = 4096, .needs_consent = true};
  const SharedExpert shared{.width = config.integer("shared_expert_intermediate_size"), .gated = true};
  const DecoderDefaults defaults{.max_positions = 32768, .kv_heads = 16, .window = kWindow};
  auto spec = read_decoder(config, defaults);
  spec.attention.qkv_bias = config.flag_or("qkv_bias", true);
  if (has_mixtures_of_llama_cpp(spec, config)) spec.model.gguf = {.architecture = "qwen2moe"};
  return with_mixtures(std::move(spec), config, shared, false);
}

DecoderSpec qwen3_moe_decoder(const ModelConfig& config) {
  constexpr WindowRule kWindow{.layers = WindowRule::kAll, .otherwise = 4096, .needs_consent = true};
  const DecoderDefaults defaults{.max_positions = 32768, .kv_heads = 4, .window = kWindow};
  auto spec = read_decoder(config, defaults);
  spec.attention.qk_norm = QkNorm::kPerHead;
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  const bool renormalises = config.flag_or("norm_topk_prob", false);  // llama.cpp does, whatever the key says
  if (has_mixtures_of_llama_cpp(spec, config) && !spec.attention.o_bias && renormalises)
    spec.model.gguf = {.architecture = "qwen3moe"};
  return with_mixtures(std::move(spec), config, {}, true);
}

}  // namespace

ModelEntry qwen2_moe() {
  return decoder_entry<qwen2_moe_decoder>(
      {.family = "qwen2_moe",
       .has_experts = true,
       .source = "Qwen2-MoE (Yang et al. 2024), transformers Qwen2MoeForCausalLM",
       .example = R"({"moe_intermediate_size": 5, "num_experts": 6, "num_experts_per_tok": 3,
                      "shared_expert_intermediate_size": 9, "decoder_sparse_step": 2})"});
}

ModelEntry qwen3_moe() {
  return decoder_entry<qwen3_moe_decoder>(
      {.family = "qwen3_moe",
       .has_experts = true,
       .source = "Qwen3-MoE (Yang et al. 2025), transformers Qwen3MoeForCausalLM",
       .example = R"({"head_dim": 6, "moe_intermediate_size": 5, "num_experts": 6, "num_experts_per_tok": 3,
                      "norm_topk_prob": true, "decoder_sparse_step": 2})"});
}

}  // namespace evenkeel::models
