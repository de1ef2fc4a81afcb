#include "models/cost.h"

#include <gtest/gtest.h>

#include <string>

#include "models/testing.h"

namespace evenkeel::models {
namespace {

ModelSpec spec_of(const Json& config) { return load_shape(testing::TemporaryFile(config.dump()).path())->spec(); }

/// The config of OLMoE-1B-7B (Muennighoff et al. 2024).
const Json kOlmoe{{"model_type", "olmoe"},       {"vocab_size", 50304},     {"hidden_size", 2048},
                  {"intermediate_size", 1024},   {"num_hidden_layers", 16}, {"num_attention_heads", 16},
                  {"num_key_value_heads", 16},   {"num_experts", 64},       {"num_experts_per_tok", 8},
                  {"tie_word_embeddings", false}};

ModelSpec olmoe() { return spec_of(kOlmoe); }

/// Returns a dense model of the same widths, with MLPs of width 8192.
ModelSpec olmo() {
  auto config = kOlmoe;
  config.update({{"model_type", "olmo"}, {"intermediate_size", 8192}});
  return spec_of(config);
}

lora::Sites lora_sites(const ModelSpec& spec, bool router, int64_t f = 1024) {
  lora::Sites sites;
  const int64_t d = spec.hidden_size, e = spec.num_experts;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const auto at = "model.layers." + std::to_string(layer);
    for (const auto* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      sites[at + ".self_attn." + name] = {0, d, d, "", lora::SiteRole::kAttention};
    const auto block = e > 0 ? at + ".mlp.experts." : at + ".mlp.";
    const auto role = e > 0 ? lora::SiteRole::kExpert : lora::SiteRole::kMlp;
    for (const auto* name : {"gate_proj", "up_proj"}) sites[block + name] = {e, d, f, at + ".mlp", role};
    sites[block + "down_proj"] = {e, f, d, at + ".mlp", role};
    if (router) sites[at + ".mlp.gate"] = {0, d, e, at + ".mlp", lora::SiteRole::kRouter};
  }
  return sites;
}

double training_total(int64_t top_k, int64_t rank) {
  const auto spec = olmoe();
  return total(training_flops(forward_cost(spec, {256, 256, top_k}, lora_sites(spec, false), rank)));
}

TEST(Cost, TrainingFlopsOfOlmoeByTopK) {
  EXPECT_EQ(training_total(1, 20), 523952455680.0);
  EXPECT_EQ(training_total(2, 20), 631561519104.0);
  EXPECT_EQ(training_total(4, 20), 846779645952.0);
  EXPECT_EQ(training_total(8, 20), 1277215899648.0);
}

TEST(Cost, TrainingFlopsDependLittleOnRank) {
  EXPECT_NEAR(training_total(8, 6), 1.2462e12, 5e7);
  EXPECT_NEAR(training_total(8, 8), 1.2506e12, 5e7);
  EXPECT_NEAR(training_total(8, 12), 1.2595e12, 5e7);
}

TEST(Cost, ForwardFlopsOfOlmoeByTopK) {
  const auto spec = olmoe();
  const auto sites = lora_sites(spec, false);
  const auto forward = [&](int64_t k) { return 2 * total(forward_cost(spec, {256, 256, k}, sites, 20)); };
  EXPECT_NEAR(forward(1), 2.556e11, 5e7);
  EXPECT_NEAR(forward(2), 3.086e11, 5e7);
  EXPECT_NEAR(forward(4), 4.147e11, 5e7);
  EXPECT_NEAR(forward(8), 6.269e11, 5e7);
}

TEST(Cost, ComponentsOfOlmoeAtOneSequence) {
  const auto spec = olmoe();
  const auto cost = forward_cost(spec, {256, 256, 1}, lora_sites(spec, true), 20);
  EXPECT_EQ(cost.attention_projections, 68719476736.0);
  EXPECT_EQ(cost.attention_scores, 4294967296.0);
  EXPECT_EQ(cost.router, 536870912.0);
  EXPECT_EQ(cost.experts, 25769803776.0);
  EXPECT_EQ(cost.head, 26373783552.0);
  EXPECT_EQ(cost.mlp, 0.0);
  EXPECT_EQ(cost.lora_attention, 1342177280.0);
  EXPECT_EQ(cost.lora_experts, 754974720.0);
  EXPECT_EQ(cost.lora_router, 256.0 * 675840);
}

TEST(Cost, ActivatedParametersOfOlmoe) {
  const auto sites = lora_sites(olmoe(), false);
  EXPECT_EQ(activated_parameters(sites, 20, 1), 8192000);
  EXPECT_EQ(activated_parameters(sites, 20, 2), 11141120);
  EXPECT_EQ(activated_parameters(sites, 20, 4), 17039360);
  EXPECT_EQ(activated_parameters(sites, 20, 8), 28835840);
  EXPECT_EQ(activated_parameters(sites, 6, 8), 8650752);
  EXPECT_EQ(activated_parameters(sites, 8, 8), 11534336);
  EXPECT_EQ(activated_parameters(sites, 12, 8), 17301504);
}

TEST(Cost, TransportedParametersOfOlmoe) {
  EXPECT_EQ(lora_parameters(lora_sites(olmoe(), false), 20), 193986560);
  EXPECT_EQ(lora_parameters(lora_sites(olmoe(), true), 20), 194662400);
}

TEST(Cost, DenseModelHasAnMlpAndNoRouter) {
  const auto spec = olmo();
  const auto sites = lora_sites(spec, false, 8192);
  EXPECT_EQ(activated_parameters(sites, 12, 0), 9043968);
  EXPECT_EQ(activated_parameters(sites, 40, 0), 30146560);
  const auto cost = forward_cost(spec, {10, 10, 0});
  EXPECT_EQ(cost.mlp, 16.0 * 10 * 3 * 2048 * 8192);
  EXPECT_EQ(cost.experts + cost.router, 0.0);
  EXPECT_EQ(forward_cost(spec, {10, 10, 0}, sites, 12).lora_mlp, 10.0 * 16 * 12 * 3 * (2048 + 8192));
}

TEST(Cost, AdaptersCostFactorsPerTokenAndExpert) {
  const auto model = testing::random_model(31);
  const auto& spec = model->spec();
  const std::vector<std::string> targets{"q_proj", "v_proj", "up_proj", "down_proj", "gate"};
  const auto cost = forward_cost(spec, {50, 10, 2}, model->sites(targets), 7);
  const auto layers = static_cast<double>(spec.num_layers), hidden = static_cast<double>(spec.hidden_size);
  const auto kv = static_cast<double>(spec.num_kv_heads * spec.head_width);
  EXPECT_EQ(cost.lora_experts, 50 * layers * 7 * 2 * 2 * (hidden + 20));
  EXPECT_EQ(cost.lora_router, 50 * layers * 7 * (hidden + static_cast<double>(spec.num_experts)));
  EXPECT_EQ(cost.lora_attention, 50 * layers * 7 * (3 * hidden + kv));
  EXPECT_EQ(cost.lora_mlp, 0.0);
}

TEST(Cost, GroupedKeysCostLess) {
  auto config = kOlmoe;
  config["num_key_value_heads"] = 4;
  const auto cost = forward_cost(spec_of(config), {3, 7, 2});
  EXPECT_EQ(cost.attention_projections, 16.0 * 3 * 2048 * (2 * 2048 + 2 * 512));
  EXPECT_EQ(cost.attention_scores, 16.0 * 3 * 7 * 2 * 2048);
}

}  // namespace
}  // namespace evenkeel::models
