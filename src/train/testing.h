/// \file  A small random model for the tests of this room and those above it.
#pragma once

#include <memory>
#include <string>

#include "base/testing.h"
#include "models/causal_lm.h"

namespace evenkeel::testing {

/// Weights are drawn large, so that choices are clear-cut and depend on all that came before.
inline std::unique_ptr<CausalLm> random_model(uint64_t seed, int64_t vocab_size = 67,
                                              BaseDtype dtype = BaseDtype::kFloat32) {
  const TemporaryFile file(concat(R"({"model_type": "olmoe", "vocab_size": )", vocab_size, R"(, "hidden_size": 24,
    "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": false, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": false, "attention_bias": false,
    "clip_qkv": null, "initializer_range": 0.4, "eos_token_id": 0, "pad_token_id": 1, "torch_dtype": "float32"})"));
  return init_model(file.path(), dtype, seed);
}

}  // namespace evenkeel::testing
