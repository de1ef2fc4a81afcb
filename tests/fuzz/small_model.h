/// \file  Writes the smallest model that has every part, for targets that need a valid model.
#pragma once

#include <string_view>

#include "models/causal_lm.h"
#include "tests/fuzz/fuzz.h"

namespace evenkeel::fuzz {

constexpr std::string_view kSmallModel = R"({"model_type": "olmoe", "vocab_size": 5, "hidden_size": 4,
  "intermediate_size": 3, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 2,
  "num_experts_per_tok": 1, "max_position_embeddings": 8, "rope_theta": 10000.0, "rms_norm_eps": 1e-05,
  "tie_word_embeddings": false, "norm_topk_prob": false, "eos_token_id": 0, "pad_token_id": 1})";

/// Writes the model into a new folder. \return the folder
inline fs::path small_model(const fs::path& folder) {
  models::save_model(*models::init_model(write("small.json", kSmallModel), models::BaseDtype::kFloat32, 7), folder);
  return folder;
}

}  // namespace evenkeel::fuzz
