// FlexOlmo: OLMo 2's norms behind attention and feed-forward blocks and QK-norm over all heads together, with OLMoE's
// sparse mixtures. Each expert was trained on data of its own. The norm behind a mixture takes out the scale of its
// output, so renormalised gates change nothing but rounding, and A3SMoE's rescaler is refused.
// Source: FlexOlmo (Shi et al. 2025); layout and order of operations of transformers' FlexOlmoForCausalLM.
#include "models/decoder.h"

namespace evenkeel::models {
namespace {

DecoderSpec flex_olmo_decoder(const ModelConfig& config) {
  auto spec = read_decoder(config, {.rope_theta = 500000});
  spec.model.peft = lora::PeftFamily::kConverted;
  spec.norm.eps = config.number_or("rms_norm_eps", 1e-6);
  spec.names.put_norms_behind_blocks();
  spec.attention.qk_norm = QkNorm::kFullWidth;
  spec.attention.qkv_bias = spec.attention.o_bias = config.flag_or("attention_bias", false);
  auto mixture = read_mixture(config);
  mixture.gate = {.renormalise = config.flag_or("norm_topk_prob", false), .key = "norm_topk_prob"};
  spec.feed_forward = in_every_layer(mixture);
  return spec;
}

}  // namespace

ModelEntry flex_olmo() {
  return decoder_entry<flex_olmo_decoder>({.family = "flex_olmo",
                                           .has_experts = true,
                                           .source = "FlexOlmo (Shi et al. 2025), transformers FlexOlmoForCausalLM",
                                           .example = R"({"num_experts": 6, "num_experts_per_tok": 3})"});
}

}  // namespace evenkeel::models
