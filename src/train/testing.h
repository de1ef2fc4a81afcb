/// \file  A small random model for the tests of this room and those above it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/files.h"
#include "models/causal_lm.h"

namespace evenkeel::testing {

/// Weights are drawn large, so that choices are clear-cut and depend on all that came before.
inline std::unique_ptr<CausalLm> random_model(uint64_t seed, int64_t vocab_size = 67) {
  const auto file = fs::temp_directory_path() / concat("evenkeel-", ::getpid(), "-", seed, "-", vocab_size, ".json");
  write_file_atomic(file, concat(R"({"model_type": "olmoe", "vocab_size": )", vocab_size, R"(, "hidden_size": 24,
    "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": false, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": false, "attention_bias": false,
    "clip_qkv": null, "initializer_range": 0.4, "eos_token_id": 0, "pad_token_id": 1, "torch_dtype": "float32"})"));
  auto model = init_model(file, BaseDtype::kFloat32, seed);
  fs::remove(file);
  return model;
}

}  // namespace evenkeel::testing
