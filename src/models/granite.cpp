// Granite: Llama's blocks with factors on embeddings, residuals, attention scores and logits. GraniteMoE has Mixtral's
// sparse blocks instead. All experts of a layer are one tensor in its checkpoints. Gates are a softmax over the logits
// of the selected experts, which is the softmax over all experts, renormalised.
// Source: Granite 3.0 (IBM 2024); layout and order of operations of transformers' GraniteForCausalLM and
// GraniteMoeForCausalLM.
#include "base/plain/text.h"
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

MixtureNames granite_names() {
  return {.router = "router.layer",
          .fused = "block_sparse_moe",
          .fused_router = "router",
          .stored_gate_up = "input_linear.weight",
          .stored_down = "output_linear.weight"};
}

double read_logits_scaling(const ModelConfig& config) {
  const double scaling = config.number_or("logits_scaling", 1.0);
  EK_CHECK(scaling != 0, kCheckpoint, config.origin(), ": logits_scaling is 0, which logits are divided by");
  return scaling;
}

/// Reads everything but the feed-forward blocks.
DecoderSpec read_granite(const ModelConfig& config) {
  auto spec = read_decoder(config, {.max_positions = 2048});
  spec.norm = {.kind = NormKind::kRms, .eps = config.number_or("rms_norm_eps", 1e-6)};
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  spec.attention.scale = config.number_or("attention_multiplier", 1.0);
  spec.scales = {.embedding = config.number_or("embedding_multiplier", 1.0),
                 .residual = config.number_or("residual_multiplier", 1.0),
                 .hidden = 1 / read_logits_scaling(config)};
  return spec;
}

DecoderSpec granite_decoder(const ModelConfig& config) {
  auto spec = read_granite(config);
  spec.model.peft = lora::PeftFamily::kDense;
  const auto activation = read_activation(config);
  if (activation == Activation::kSilu) spec.model.gguf = {.architecture = "granite", .interleaves_heads = true};
  spec.feed_forward = in_every_layer(MlpSpec{.width = config.integer("intermediate_size"),
                                             .activation = activation,
                                             .bias = config.flag_or("mlp_bias", false)});
  return spec;
}

DecoderSpec granitemoe_decoder(const ModelConfig& config) {
  auto spec = read_granite(config);
  spec.model.peft = lora::PeftFamily::kJoined;
  spec.names.feed_forward = "block_sparse_moe";
  auto mixture = read_mixture(config, {.experts = "num_local_experts"});
  mixture.gate = {.renormalise = true, .servers = true};
  mixture.names = granite_names();
  spec.feed_forward = in_every_layer(mixture);
  return spec;
}

}  // namespace

ModelEntry granite() {
  return decoder_entry<granite_decoder>(
      {.family = "granite",
       .has_experts = false,
       .source = "Granite 3.0 (IBM 2024), transformers GraniteForCausalLM",
       .example = R"({"embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.6,
                      "attention_multiplier": 0.3, "tie_word_embeddings": true})"});
}

ModelEntry granitemoe() {
  return decoder_entry<granitemoe_decoder>(
      {.family = "granitemoe",
       .has_experts = true,
       .source = "Granite 3.0 (IBM 2024), transformers GraniteMoeForCausalLM",
       .example = R"({"num_local_experts": 6, "num_experts_per_tok": 3, "embedding_multiplier": 3.0,
                      "logits_scaling": 2.0, "residual_multiplier": 0.6, "attention_multiplier": 0.3})"});
}

}  // namespace evenkeel::models
