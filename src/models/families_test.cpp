#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "base/format/safetensors.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "models/causal_lm.h"
#include "models/testing.h"

namespace evenkeel::models {
namespace {

using testing::kSequences;
using testing::make_model;

// Older versions of transformers stored the frequencies of rotary positions, which config.json gives.
TEST(Families, LeaveOutTheFrequenciesOfTheirPositions) {
  for (const auto& entry : model_families()) {
    const testing::TemporaryFolder folder;
    const auto path = folder.path() / "model", file = path / "model.safetensors";
    save_model(*make_model(entry.family, BaseDtype::kFloat32), path);
    TensorMap tensors;
    for (const auto& [name, tensor] : load_safetensors(file).tensors) tensors[name] = tensor.clone();
    for (const auto* module : {"layers.0.self_attn.", "layers.1.self_attn.", ""})
      tensors[concat("model.", module, "rotary_emb.inv_freq")] = at::ones({3});
    save_safetensors(file, tensors);
    EXPECT_NO_THROW(load_model(path)) << entry.family;
  }
}

TEST(Qwen3Moe, ReadsHeadWidthAndExpertWidth) {
  const auto weights = testing::make_model("qwen3_moe", BaseDtype::kFloat32, {{"head_dim", 4}})->parameters();
  EXPECT_EQ(weights.at("model.layers.0.self_attn.q_proj.weight").sizes(), at::IntArrayRef({6 * 4, 12}));
  EXPECT_EQ(weights.at("model.layers.0.self_attn.o_proj.weight").sizes(), at::IntArrayRef({12, 6 * 4}));
  EXPECT_EQ(weights.at("model.layers.0.self_attn.k_norm.weight").sizes(), at::IntArrayRef({4}));
  EXPECT_EQ(weights.at("model.layers.1.mlp.experts.5.up_proj.weight").sizes(), at::IntArrayRef({5, 12}));
}

TEST(Qwen3Moe, HasDenseLayersBetweenSparseOnesAndWhereListed) {
  const Json five{{"num_hidden_layers", 5}};
  const auto model = testing::make_model("qwen3_moe", BaseDtype::kFloat32, five);
  EXPECT_EQ(model->spec().moe_layers, (std::vector<std::string>{"model.layers.1.mlp", "model.layers.3.mlp"}));
  EXPECT_EQ(model->all_sites().at("model.layers.4.mlp.up_proj").role, lora::SiteRole::kMlp);
  EXPECT_TRUE(model->spec().gguf.architecture.empty()) << "llama.cpp knows no dense layer there";
  auto named = five;
  named["mlp_only_layers"] = {1, 4};
  EXPECT_EQ(testing::make_model("qwen3_moe", BaseDtype::kFloat32, named)->spec().moe_layers,
            std::vector<std::string>{"model.layers.3.mlp"});
}

TEST(QwenMoe, LlamaCppAloneFixesTheGatesOfModelsThatItHas) {
  const auto gates = [](std::string_view family, int64_t step, bool renormalise) {
    const Json keys{{"decoder_sparse_step", step}, {"norm_topk_prob", renormalise}};
    return testing::make_model(family, BaseDtype::kFloat32, keys)->spec().gates;
  };
  EXPECT_EQ(gates("qwen2_moe", 1, true).servers, std::optional(false));
  EXPECT_EQ(gates("qwen3_moe", 1, true).servers, std::optional(true));
  EXPECT_TRUE(gates("qwen2_moe", 1, true).only_llama_cpp && gates("qwen3_moe", 1, true).only_llama_cpp);
  EXPECT_EQ(gates("qwen2_moe", 2, true).servers, std::nullopt);
  EXPECT_EQ(gates("qwen3_moe", 1, false).servers, std::nullopt);
  EXPECT_EQ(gates("qwen3_moe", 1, false).key, "norm_topk_prob");
}

TEST(Qwen2Moe, HasASharedExpertAndBiasesOfItsOwn) {
  const auto model = testing::make_model("qwen2_moe", BaseDtype::kFloat32, {{"shared_expert_intermediate_size", 8}});
  const auto weights = model->parameters();
  EXPECT_EQ(weights.at("model.layers.0.self_attn.q_proj.bias").sizes(), at::IntArrayRef({12}));
  EXPECT_EQ(weights.at("model.layers.0.self_attn.k_proj.bias").sizes(), at::IntArrayRef({4}));
  EXPECT_FALSE(weights.contains("model.layers.0.self_attn.o_proj.bias"));
  EXPECT_EQ(weights.at("model.layers.1.mlp.experts.5.up_proj.weight").sizes(), at::IntArrayRef({5, 12}));
  EXPECT_EQ(weights.at("model.layers.1.mlp.shared_expert.up_proj.weight").sizes(), at::IntArrayRef({8, 12}));
  EXPECT_EQ(weights.at("model.layers.1.mlp.shared_expert_gate.weight").sizes(), at::IntArrayRef({1, 12}));
}

TEST(Qwen2Moe, HasDenseLayersBetweenSparseOnesAndWhereListed) {
  const Json five{{"num_hidden_layers", 5}};
  EXPECT_EQ(testing::make_model("qwen2_moe", BaseDtype::kFloat32, five)->spec().moe_layers,
            (std::vector<std::string>{"model.layers.1.mlp", "model.layers.3.mlp"}));
  const Json named{{"num_hidden_layers", 5}, {"decoder_sparse_step", 1}, {"mlp_only_layers", {0, 2}}};
  const auto model = testing::make_model("qwen2_moe", BaseDtype::kFloat32, named);
  EXPECT_EQ(model->spec().moe_layers,
            (std::vector<std::string>{"model.layers.1.mlp", "model.layers.3.mlp", "model.layers.4.mlp"}));
  EXPECT_TRUE(model->spec().gguf.architecture.empty()) << "llama.cpp knows no dense layer there";
}

TEST(DeepseekV3, IsDenseInItsFirstLayersAndLeavesThoseOfPredictionUnread) {
  const auto model = testing::make_model("deepseek_v3", BaseDtype::kFloat32, {{"num_hidden_layers", 3}});
  EXPECT_EQ(model->spec().moe_layers, (std::vector<std::string>{"model.layers.1.mlp", "model.layers.2.mlp"}));
  const testing::TemporaryFolder folder;
  save_model(*model, folder.path() / "whole");
  auto config = Json::parse(model->config_json());
  for (const int64_t unread : {1, 0}) {
    config["num_hidden_layers"] = 2;
    config["num_nextn_predict_layers"] = unread;
    write_file_atomic(folder.path() / "whole/config.json", config.dump());
    if (unread == 1)
      EXPECT_EQ(load_model(folder.path() / "whole")->spec().num_layers, 2);
    else
      EXPECT_THROW(load_model(folder.path() / "whole"), Error) << "the third layer has no place";
  }
}

TEST(FlexOlmo, HasANormBehindItsExperts) {
  EXPECT_TRUE(testing::make_model("flex_olmo", BaseDtype::kFloat32)->spec().norm_behind_experts);
  for (const auto* family : {"olmoe", "qwen3_moe", "glm4_moe"})
    EXPECT_FALSE(testing::make_model(family, BaseDtype::kFloat32)->spec().norm_behind_experts) << family;
}

TEST(SigmoidRouter, KeepsItsBiasInFloat32WhateverTheTypeOfTheOthers) {
  const std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
  for (const auto* family : {"deepseek_v3", "glm4_moe"}) {
    const auto model = testing::make_model(family, BaseDtype::kFloat32);
    model->parameters().at(name).fill_(1.001);  // not a bfloat16
    const testing::TemporaryFolder folder;
    save_model(*model, folder.path() / "model");
    save_model(*model, folder.path() / "halves", BaseDtype::kBFloat16);
    const auto written = load_model(folder.path() / "halves")->parameters();
    EXPECT_EQ(written.at("model.layers.1.mlp.gate.weight").scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(written.at(name), model->parameters().at(name))) << family;
    BaseStorage halves = BaseDtype::kBFloat16, eighths = halves;
    eighths.format = BaseFormat::kInt8;
    for (const auto& storage : {halves, eighths}) {
      const auto loaded = load_model(folder.path() / "model", storage)->parameters();
      EXPECT_EQ(loaded.at("model.layers.1.mlp.gate.weight").scalar_type(), at::kBFloat16);
      EXPECT_TRUE(at::equal(loaded.at(name), model->parameters().at(name))) << family;
    }
  }
}

TEST(Deepseek, NamesTheLinearsOfLatentAttention) {
  const auto sites = testing::make_model("deepseek_v3", BaseDtype::kFloat32)->all_sites();
  const auto narrow = testing::make_model("deepseek_v2", BaseDtype::kFloat32)->all_sites();
  EXPECT_EQ(sites.at("model.layers.1.self_attn.q_a_proj").out, 7);
  EXPECT_EQ(sites.at("model.layers.1.self_attn.q_b_proj").out, 6 * (4 + 6));
  EXPECT_EQ(narrow.at("model.layers.1.self_attn.q_proj").out, 6 * (4 + 6));
  EXPECT_EQ(narrow.at("model.layers.1.self_attn.kv_a_proj_with_mqa").out, 5 + 6);
  EXPECT_EQ(narrow.at("model.layers.1.self_attn.kv_b_proj").out, 6 * (4 + 8));
  EXPECT_EQ(narrow.at("model.layers.1.self_attn.o_proj").in, 6 * 8);
}

TEST(Deepseek, TargetsOfOrdinaryAttentionStandForTheLinearsOfLatentAttention) {
  const auto model = testing::make_model("deepseek_v3", BaseDtype::kFloat32);
  const auto names = [&](const std::vector<std::string>& targets) {
    std::set<std::string> last;
    for (const auto& [name, site] : model->sites(targets)) last.insert(name.substr(name.rfind('.') + 1));
    return last;
  };
  EXPECT_EQ(names({"q_proj"}), (std::set<std::string>{"q_a_proj", "q_b_proj"}));
  EXPECT_EQ(names({"v_proj"}), (std::set<std::string>{"kv_a_proj_with_mqa", "kv_b_proj"}));
  EXPECT_EQ(names({"k_proj", "v_proj", "kv_b_proj"}), names({"v_proj"}));
  EXPECT_THROW(names({"q_proj", "q_proj"}), Error);
  EXPECT_THROW(testing::make_model("olmoe", BaseDtype::kFloat32)->sites(std::vector<std::string>{"q_a_proj"}), Error);
}

TEST(Glm4Moe, RotatesTheFirstElementsOfEachHead) {
  const auto batch = data::pack_ids(testing::kSequences);
  const auto hidden = [&](double share) {
    return testing::make_model("glm4_moe", BaseDtype::kFloat64, {{"partial_rotary_factor", share}})->hidden(batch, {});
  };
  EXPECT_GT(testing::max_difference(hidden(0.5), hidden(1.0)), 1e-3);
  EXPECT_THROW(hidden(0.4), Error) << "three elements of eight";
  EXPECT_THROW(hidden(1.5), Error);
}

TEST(Mixtral, UsesCommonSiteNamesAndItsCheckpointsModuleNames) {
  const auto model = testing::make_model("mixtral", BaseDtype::kFloat32);
  const auto& up = model->all_sites().at("model.layers.1.block_sparse_moe.experts.up_proj");
  EXPECT_EQ(up.modules[4], "model.layers.1.block_sparse_moe.experts.4.w3");
  EXPECT_EQ(up.fused.module, "model.layers.1.mlp.experts");
  EXPECT_TRUE(model->spec().gates.renormalise);
}

TEST(Mixtral, LlamaCppServesItWithoutAWindowThatLimitsATextOnly) {
  const auto architecture = [](int64_t window) {
    return testing::make_model("mixtral", BaseDtype::kFloat32, {{"sliding_window", window}})->spec().gguf.architecture;
  };
  EXPECT_EQ(architecture(32), "llama");
  EXPECT_EQ(architecture(31), "");
}

/// Families and keys that give both layers, or the second alone, a window of three tokens.
const std::vector<std::pair<std::string, Json>> kWindows{
    {"mistral", {{"sliding_window", 3}}},
    {"mixtral", {{"sliding_window", 3}}},
    {"qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 3}}},
    {"qwen2_moe", {{"use_sliding_window", true}, {"sliding_window", 3}}},
    {"qwen2", {{"use_sliding_window", true}, {"sliding_window", 3}, {"max_window_layers", 1}}},
    {"qwen3",
     {{"use_sliding_window", true}, {"sliding_window", 3}, {"layer_types", {"full_attention", "sliding_attention"}}}},
    {"gemma3_text", {{"sliding_window", 3}, {"layer_types", {"full_attention", "sliding_attention"}}}},
    {"gemma2", {{"sliding_window", 3}}}};

TEST(SlidingWindow, HidesTokensThatAreOutOfReachOfAllLayers) {
  for (const auto& [family, keys] : kWindows) {
    const auto model = testing::make_model(family, BaseDtype::kFloat64, keys);
    auto other = testing::kSequences;
    other[0][0] = 8;
    const auto changed =
        (model->hidden(data::pack_ids(other), {}) - model->hidden(data::pack_ids(testing::kSequences), {}))
            .abs()
            .amax(1);
    // Two layers of three tokens each: the token at 5 sees those from 1 on, if both layers have the window.
    const bool both = family == "mistral" || family == "mixtral" || family == "qwen3_moe";
    EXPECT_EQ(changed[5].item<double>() < 1e-12, both) << family;
    EXPECT_GT(changed[4].item<double>(), 1e-6) << family;
  }
}

TEST(SlidingWindow, IsTheSameWithACache) {
  for (const auto& [family, keys] : kWindows) {
    const auto model = testing::make_model(family, BaseDtype::kFloat64, keys);
    const std::vector<std::vector<int64_t>> texts{{1, 4, 9, 2, 10, 3, 6}};
    const auto whole = model->hidden(data::pack_ids(texts), {});
    nn::KvCache cache(
        {.layers = 2, .heads = model->spec().num_kv_heads, .width = model->spec().head_width, .type = at::kDouble});
    cache.sequences.resize(1);
    cache.open(0, 7);
    std::vector<at::Tensor> steps;
    for (const auto& [begin, end] : {std::pair{0, 4}, {4, 5}, {5, 7}}) {
      const std::vector<std::vector<int64_t>> part{{texts[0].begin() + begin, texts[0].begin() + end}};
      auto batch = data::pack_ids(part);
      batch.positions = at::arange(begin, end, at::kLong);
      steps.push_back(model->hidden(batch, {.cache = &cache}));
    }
    EXPECT_LT(testing::max_difference(at::cat(steps), whole), 1e-12) << family;
  }
}

TEST(Gemma3, NormsOfARandomModelMultiplyByOne) {
  const auto weights = testing::make_model("gemma3_text", BaseDtype::kFloat32)->parameters();
  for (const auto* name : {"layers.0.input_layernorm", "layers.1.post_attention_layernorm", "layers.0.self_attn.q_norm",
                           "layers.0.pre_feedforward_layernorm", "layers.1.post_feedforward_layernorm", "norm"})
    EXPECT_TRUE(at::equal(weights.at(concat("model.", name, ".weight")),
                          at::zeros_like(weights.at(concat("model.", name, ".weight")))))
        << name;
}

TEST(Gemma3, RoundsTheFactorOfTheEmbeddingToTheTypeOfTheEmbedding) {
  // The square root of 12 is 3.4641, in bfloat16 3.46875.
  const auto batch = data::pack_ids(testing::kSequences);
  const auto half = testing::make_model("gemma3_text", BaseDtype::kBFloat16);
  const auto whole = testing::make_model("gemma3_text", BaseDtype::kFloat32);
  const auto from = half->parameters();
  for (auto& [name, tensor] : whole->parameters()) at::Tensor(tensor).copy_(from.at(name));
  const double factor = std::sqrt(12.0);
  at::Tensor(whole->parameters().at("model.embed_tokens.weight")).mul_(3.46875 / factor);
  EXPECT_LT(testing::max_difference(whole->hidden(batch, {}), half->hidden(batch, {})), 1e-4);
  at::Tensor(whole->parameters().at("model.embed_tokens.weight")).mul_(factor / 3.46875);
  EXPECT_GT(testing::max_difference(whole->hidden(batch, {}), half->hidden(batch, {})), 1e-4);
}

TEST(Gemma3, LayersWithAWindowHavePositionsOfTheirOwn) {
  const auto hidden = [](const Json& change) {
    return testing::make_model("gemma3_text", BaseDtype::kFloat64, change)
        ->hidden(data::pack_ids(testing::kSequences), {});
  };
  const Json sliding{{"layer_types", {"sliding_attention", "sliding_attention"}}},
      full{{"layer_types", {"full_attention", "full_attention"}}};
  for (const auto& [types, key, other] : {std::tuple{sliding, "rope_local_base_freq", "rope_theta"},
                                          std::tuple{full, "rope_theta", "rope_local_base_freq"}}) {
    Json changed = types, unchanged = types;
    changed[key] = 3.0;
    unchanged[other] = 3.0;
    EXPECT_GT(testing::max_difference(hidden(changed), hidden(types)), 1e-3) << key;
    EXPECT_EQ(testing::max_difference(hidden(unchanged), hidden(types)), 0) << other;
  }
}

TEST(Gemma2, CapsScoresAndLogits) {
  const auto batch = data::pack_ids(testing::kSequences);
  const auto of = [&](const Json& change) {
    const auto model = testing::make_model("gemma2", BaseDtype::kFloat64, change);
    return model->logits(model->hidden(batch, {}), {});
  };
  const auto both = of(Json::object()), free = of({{"final_logit_softcapping", nullptr}});
  EXPECT_LT(testing::max_difference(both, 4 * at::tanh(free / 4)), 1e-12);
  EXPECT_GT(testing::max_difference(free, both), 1e-3);
  EXPECT_GT(testing::max_difference(of({{"attn_logit_softcapping", nullptr}}), both), 1e-4);
}

TEST(Gemma3, LlamaCppServesItWithItsOwnPatternAndScaleOnly) {
  const auto architecture = [](const Json& more) {
    Json keys{{"query_pre_attn_scalar", 6},
              {"rope_local_base_freq", 10000.0},
              {"sliding_window_pattern", 6},
              {"final_logit_softcapping", nullptr}};
    keys.update(more);
    return testing::make_model("gemma3_text", BaseDtype::kFloat32, keys)->spec().gguf.architecture;
  };
  EXPECT_EQ(architecture(Json::object()), "gemma3");
  for (const Json& more : {Json{{"query_pre_attn_scalar", 9}}, Json{{"sliding_window_pattern", 2}},
                           Json{{"final_logit_softcapping", 30.0}}, Json{{"rope_local_base_freq", 9.0}},
                           Json{{"hidden_activation", "gelu"}}, Json{{"tie_word_embeddings", false}}})
    EXPECT_EQ(architecture(more), "") << more;
}

TEST(GraniteMoe, AppliesItsScalingFactors) {
  const auto batch = data::pack_ids(testing::kSequences);
  const auto hidden = [&](const Json& change) {
    return testing::make_model("granitemoe", BaseDtype::kFloat64, change)->hidden(batch, {});
  };
  const auto plain = hidden({{"logits_scaling", 1.0}});
  EXPECT_LT(testing::max_difference(hidden({{"logits_scaling", 8.0}}) * 8, plain), 1e-12);
  for (const auto* key : {"attention_multiplier", "residual_multiplier", "embedding_multiplier"})
    EXPECT_GT(testing::max_difference(hidden({{"logits_scaling", 1.0}, {key, 1.7}}), plain), 1e-3) << key;
}

/// Returns Granite's name of a tensor of Mixtral.
std::string granite_name(std::string name) {
  for (const auto& [old, now] : std::vector<std::pair<std::string, std::string>>{{".w1.", ".gate_proj."},
                                                                                 {".w3.", ".up_proj."},
                                                                                 {".w2.", ".down_proj."},
                                                                                 {"_moe.gate.", "_moe.router.layer."}})
    if (const auto at = name.find(old); at != name.npos) return name.replace(at, old.size(), now);
  return name;
}

// There are 6 heads of width 2. Other families scale scores by 1 / sqrt(2).
TEST(GraniteMoe, EqualsMixtralWithoutItsFactors) {
  const auto batch = data::pack_ids(testing::kSequences);
  const auto granite = testing::make_model("granitemoe", BaseDtype::kFloat64,
                                           {{"embedding_multiplier", 1},
                                            {"logits_scaling", 1},
                                            {"residual_multiplier", 1},
                                            {"attention_multiplier", std::sqrt(0.5)}});
  const auto mixtral =
      testing::make_model("mixtral", BaseDtype::kFloat64, {{"rope_theta", 10000.0}, {"rms_norm_eps", 1e-6}});
  const auto from = granite->parameters();
  for (auto& [name, tensor] : mixtral->parameters()) at::Tensor(tensor).copy_(from.at(granite_name(name)));
  EXPECT_LT(testing::max_difference(granite->hidden(batch, {}), mixtral->hidden(batch, {})), 1e-5);
}

}  // namespace
}  // namespace evenkeel::models
