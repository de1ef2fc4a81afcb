#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files.h"
#include "models/causal_lm.h"
#include "nn/testing.h"

namespace evenkeel {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

const std::vector<std::string> kTargets{"q_proj",    "k_proj",  "v_proj",    "o_proj",
                                        "gate_proj", "up_proj", "down_proj", "gate"};
const std::vector<std::vector<int64_t>> kSequences{{1, 4, 9, 2, 10, 3}, {7}, {5, 5, 0, 8}};

std::unique_ptr<CausalLm> make_model(BaseDtype dtype, std::string_view more = "") {
  const auto file = fs::temp_directory_path() / concat("evenkeel_olmoe_", ::getpid(), ".json");
  write_file_atomic(file, concat(R"({"model_type": "olmoe", "vocab_size": 11, "hidden_size": 12, "intermediate_size": 7,
    "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "num_experts": 5,
    "num_experts_per_tok": 3, "max_position_embeddings": 32, "initializer_range": 0.4)",
                                 more, "}"));
  auto model = init_model(file, dtype, 7);
  fs::remove(file);
  return model;
}

AdapterState make_adapters(const CausalLm& model, int64_t rank, at::ScalarType dtype) {
  AdapterState state;
  uint64_t seed = 60;
  for (const auto& [name, site] : model.sites(kTargets)) {
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

TEST(Olmoe, NamesItsSitesLikeTheCheckpoint) {
  const auto model = make_model(BaseDtype::kFloat32);
  const auto sites = model->sites(kTargets);
  EXPECT_EQ(sites.size(), 16u);
  const auto& down = sites.at("model.layers.1.mlp.experts.down_proj");
  EXPECT_EQ(down.experts, 5);
  EXPECT_EQ(down.in, 7);
  EXPECT_EQ(down.out, 12);
  EXPECT_EQ(down.moe_layer, "model.layers.1.mlp");
  const auto& k = sites.at("model.layers.0.self_attn.k_proj");
  EXPECT_EQ(k.experts, 0);
  EXPECT_EQ(k.out, 4);
  EXPECT_EQ(sites.at("model.layers.0.mlp.gate").out, 5);
  EXPECT_THROW(model->sites(std::vector<std::string>{"lm_head"}), Error);
}

TEST(Olmoe, PackedSequencesEqualEachAlone) {
  const auto model = make_model(BaseDtype::kFloat64, R"(, "clip_qkv": 0.5, "norm_topk_prob": true)");
  const auto adapters = make_adapters(*model, 2, at::kDouble);
  ForwardOptions options;
  options.adapters = &adapters;
  const auto packed = model->hidden(pack_ids(kSequences), options);
  int64_t start = 0;
  for (const auto& sequence : kSequences) {
    const auto alone = model->hidden(pack_ids(std::vector<std::vector<int64_t>>{sequence}), options);
    EXPECT_LT(max_difference(packed.narrow(0, start, alone.size(0)), alone), 1e-12);
    start += alone.size(0);
  }
}

TEST(Olmoe, GenerationWithACacheEqualsTheWholeSequence) {
  const auto model = make_model(BaseDtype::kFloat64);
  const auto whole = model->hidden(pack_ids(kSequences), {});
  std::vector<int64_t> capacity;
  for (const auto& sequence : kSequences) capacity.push_back(static_cast<int64_t>(sequence.size()));
  auto cache = KvCache::make(2, capacity, 2, 2);
  ForwardOptions options;
  options.cache = &cache;
  std::vector<std::vector<int64_t>> prompts;
  for (const auto& sequence : kSequences) prompts.emplace_back(sequence.begin(), sequence.begin() + 1);
  model->hidden(pack_ids(prompts), options);
  EXPECT_EQ(cache.lengths, std::vector<int64_t>({1, 1, 1}));
  cache.select(std::vector<int64_t>{2, 0});
  auto tail = pack_ids(std::vector<std::vector<int64_t>>{{5, 0, 8}, {4, 9, 2, 10, 3}});
  tail.positions.add_(1);
  const auto out = model->hidden(tail, options);
  EXPECT_LT(max_difference(out, at::cat({whole.slice(0, 8, 11), whole.slice(0, 1, 6)})), 1e-12);
  EXPECT_EQ(cache.lengths, std::vector<int64_t>({4, 6}));
}

TEST(Olmoe, AdapterGradientsOfTheWholeModelMatchCentralDifferences) {
  const auto model = make_model(BaseDtype::kFloat64, R"(, "clip_qkv": 2.0)");
  const auto base = make_adapters(*model, 2, at::kDouble);
  const PackedBatch batch = pack_ids(kSequences);
  for (const std::string site : {"model.layers.0.self_attn.k_proj", "model.layers.0.mlp.gate",
                                 "model.layers.0.mlp.experts.up_proj", "model.layers.1.self_attn.o_proj"})
    expect_gradients_match(
        [&](const std::vector<at::Tensor>& in) {
          auto adapters = base;
          adapters[site].a = in[0];
          adapters[site].b = in[1];
          ForwardOptions options;
          options.adapters = &adapters;
          return model->loss(batch, options).sum;
        },
        {base.at(site).a, base.at(site).b}, 1e-5);
}

TEST(Olmoe, TheBaseGetsNoGradientUnlessItIsAskedFor) {
  const auto model = make_model(BaseDtype::kFloat32);
  auto adapters = make_adapters(*model, 2, at::kFloat);
  for (auto& [name, lora] : adapters) {
    lora.a.requires_grad_(true);
    lora.b.requires_grad_(true);
  }
  ForwardOptions options;
  options.adapters = &adapters;
  options.router.top_k = 2;
  model->loss(pack_ids(kSequences), options).sum.backward();
  for (const auto& [name, tensor] : model->parameters()) EXPECT_FALSE(tensor.grad().defined()) << name;
  for (const auto& [name, lora] : adapters) EXPECT_TRUE(lora.a.grad().defined() && lora.b.grad().defined()) << name;
}

TEST(Olmoe, EveryBaseTensorGetsItsGradientInPreTraining) {
  const auto model = make_model(BaseDtype::kFloat64, R"(, "tie_word_embeddings": true)");
  auto parameters = model->parameters();
  for (auto& [name, tensor] : parameters) tensor.requires_grad_(true);
  const PackedBatch batch = pack_ids(kSequences);
  const auto value = [&] { return model->loss(batch, {}).sum; };
  value().backward();
  for (auto& [name, tensor] : parameters) {
    ASSERT_TRUE(tensor.grad().defined()) << name;
    double* element = tensor.mutable_data_ptr<double>() + tensor.numel() / 3;
    const double kept = *element;
    *element = kept + 1e-5;
    const double above = value().item<double>();
    *element = kept - 1e-5;
    const double below = value().item<double>();
    *element = kept;
    const double numeric = (above - below) / 2e-5;
    EXPECT_NEAR(tensor.grad().flatten()[tensor.numel() / 3].item<double>(), numeric, 1e-5 * (1 + std::abs(numeric)))
        << name;
  }
}

TEST(Olmoe, NeverUsesMoreExpertsThanTheBudgetAndCountsEveryToken) {
  const auto model = make_model(BaseDtype::kFloat32);
  const PackedBatch batch = pack_ids(kSequences);
  for (const int64_t k : {0, 1, 2, 5}) {
    RoutingByLayer routing;
    ForwardOptions options;
    options.router.top_k = k;
    options.routing = &routing;
    model->hidden(batch, options);
    ASSERT_EQ(routing.size(), 2u);
    for (const auto& [layer, stats] : routing) {
      EXPECT_EQ(stats.tokens, batch.tokens());
      EXPECT_EQ(stats.counts.sum().item<int64_t>(), batch.tokens() * (k ? k : 3)) << layer;
      EXPECT_LE(stats.counts.max().item<int64_t>(), batch.tokens());
    }
  }
}

TEST(Olmoe, PhiReachesTheRouterOfItsLayer) {
  const auto model = make_model(BaseDtype::kFloat32);
  RoutingByLayer routing;
  ForwardOptions options;
  options.router.top_k = 1;
  options.router.num_candidates = 5;
  options.router.modulation["model.layers.1.mlp"] = at::tensor({0.0, 0.0, 100.0, 0.0, 0.0});
  options.routing = &routing;
  model->hidden(pack_ids(kSequences), options);
  EXPECT_EQ(routing.at("model.layers.1.mlp").counts[2].item<int64_t>(), 11);
  EXPECT_LT(routing.at("model.layers.0.mlp").counts[2].item<int64_t>(), 11);
}

TEST(Olmoe, RefusesWhatItCannotRun) {
  const auto model = make_model(BaseDtype::kFloat32);
  EXPECT_THROW(model->hidden(pack_ids(std::vector<std::vector<int64_t>>{{11}}), {}), Error);
  EXPECT_THROW(model->hidden(pack_ids(std::vector<std::vector<int64_t>>{std::vector<int64_t>(33, 1)}), {}), Error);
  AdapterState stray{{"model.layers.2.mlp.gate", {at::zeros({1, 12}), at::zeros({5, 1}), {}, 1}}};
  ForwardOptions options;
  options.adapters = &stray;
  EXPECT_THROW(model->hidden(pack_ids(kSequences), options), Error);
}

TEST(Olmoe, ForwardCostCountsTheAdaptersPerTokenAndExpert) {
  const auto model = make_model(BaseDtype::kFloat32);
  const auto adapters = make_adapters(*model, 2, at::kFloat);
  const auto cost = model->forward_cost(10, 5, 3, &adapters);
  EXPECT_DOUBLE_EQ(cost.attention_projections, 10 * 2 * 2 * 12 * (12 + 4));
  EXPECT_DOUBLE_EQ(cost.attention_scores, 10 * 2 * 2 * 12 * 5);
  EXPECT_DOUBLE_EQ(cost.experts, 10 * 2 * 3 * 3 * 12 * 7);
  EXPECT_DOUBLE_EQ(cost.router, 10 * 2 * 12 * 5);
  EXPECT_DOUBLE_EQ(cost.head, 10 * 12 * 11);
  EXPECT_DOUBLE_EQ(cost.lora_experts, 10 * 3 * 2 * 3 * 2 * (12 + 7));
  EXPECT_DOUBLE_EQ(cost.lora_router, 10 * 2 * 2 * (12 + 5));
  EXPECT_DOUBLE_EQ(cost.lora_attention, 10 * 2 * 2 * (24 + 16 + 16 + 24));
}

}  // namespace
}  // namespace evenkeel
