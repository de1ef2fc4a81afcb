/// \file  Creates random models of every family for tests of this folder and of folders that use it. The models have
/// two layers and no square matrices.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/json.h"
#include "base/testing.h"
#include "models/causal_lm.h"
#include "nn/testing.h"

namespace evenkeel::testing {

inline const std::vector<std::vector<int64_t>> kSequences{{1, 4, 9, 2, 10, 3}, {7}, {5, 5, 0, 8}};

/// Returns the registry entry of a family.
inline const models::ModelEntry& entry_of(std::string_view family) {
  for (const auto& entry : models::model_families())
    if (entry.family == family) return entry;
  fail(kInternal, "there is no model family ", family);
}

/// Creates a model of a family from `shape`, the entry's example keys and `more`. Later values replace earlier ones.
inline std::unique_ptr<models::CausalLm> example_model(std::string_view family, const Json& shape,
                                                       const models::BaseStorage& storage, uint64_t seed,
                                                       const Json& more = Json::object()) {
  Json config = shape;
  config["model_type"] = family;
  config.update(Json::parse(entry_of(family).example));
  config.update(more);
  return models::init_model(TemporaryFile(config.dump()).path(), storage, seed);
}

/// Creates a model with D = 12, F = 7, V = 11, 6 heads over 2 key/value heads, and, if sparse, 3 of 6 experts per
/// token.
/// \param more  further keys of config.json
inline std::unique_ptr<models::CausalLm> make_model(std::string_view family, const models::BaseStorage& storage,
                                                    const Json& more = Json::object()) {
  const Json shape{{"vocab_size", 11},
                   {"hidden_size", 12},
                   {"intermediate_size", 7},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 6},
                   {"num_key_value_heads", 2},
                   {"max_position_embeddings", 32},
                   {"initializer_range", 0.4}};
  return example_model(family, shape, storage, 7, more);
}

/// Returns random factors of rank `rank` at all sites of a model, with scaling 1.5.
inline lora::AdapterState random_adapters(const models::CausalLm& model, int64_t rank, at::ScalarType dtype) {
  lora::AdapterState state;
  uint64_t seed = 60;
  for (const auto& [name, site] : model.all_sites()) {
    std::vector<int64_t> a{rank, site.in}, b{site.out, rank};
    if (site.experts) {
      a.insert(a.begin(), site.experts);
      b.insert(b.begin(), site.experts);
    }
    state[name] = {random_tensor(a, seed, dtype) * 0.3, random_tensor(b, seed + 1, dtype) * 0.3, {}, 1.5};
    seed += 2;
  }
  return state;
}

/// Creates a sparse model with large weights, so that the likeliest tokens are clear and depend on the whole context.
inline std::unique_ptr<models::CausalLm> random_model(uint64_t seed, int64_t vocab_size = 67,
                                                      models::BaseDtype dtype = models::BaseDtype::kFloat32) {
  const TemporaryFile file(concat(R"({"model_type": "olmoe", "vocab_size": )", vocab_size, R"(, "hidden_size": 24,
    "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": false, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": false, "attention_bias": false,
    "clip_qkv": null, "initializer_range": 0.4, "eos_token_id": 0, "pad_token_id": 1, "torch_dtype": "float32"})"));
  return models::init_model(file.path(), dtype, seed);
}

}  // namespace evenkeel::testing
