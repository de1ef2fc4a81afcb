// Phi-3: Llama's blocks with one linear for queries, keys and values, and one for gate and up projections. A part of
// each head may be rotated, with frequencies of LongRoPE.
// Source: Phi-3 (Microsoft 2024); layout and order of operations of transformers' Phi3ForCausalLM.
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

DecoderSpec phi3_decoder(const ModelConfig& config) {
  config.require("resid_pdrop", 0.0, kNoDropout);
  auto spec =
      read_decoder(config, {.max_positions = 4096, .window = {.layers = WindowRule::kAll}, .has_long_rope = true});
  spec.model.peft = lora::PeftFamily::kDense;
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-5);
  spec.attention.names.qkv = "qkv_proj";
  const auto activation = read_activation(config);
  // llama.cpp's model has SiLU and no windows.
  if (activation == Activation::kSilu && spec.attention.windows.empty()) spec.model.gguf = {.architecture = "phi3"};
  spec.feed_forward = in_every_layer(MlpSpec{
      .width = config.integer("intermediate_size"), .activation = activation, .names = {.gate_up = "gate_up_proj"}});
  return spec;
}

}  // namespace

ModelEntry phi3() {
  return decoder_entry<phi3_decoder>({.family = "phi3",
                                      .has_experts = false,
                                      .source = "Phi-3 (Microsoft 2024), transformers Phi3ForCausalLM",
                                      .example = R"({"head_dim": 8, "partial_rotary_factor": 0.5})"});
}

}  // namespace evenkeel::models
