#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "models/causal_lm.h"
#include "models/testing.h"

namespace evenkeel::models {
namespace {

using testing::kSequences;

std::unique_ptr<CausalLm> make_olmoe() { return testing::make_model("olmoe", BaseDtype::kFloat32); }

TEST(Olmoe, SitesHaveTheCheckpointsNames) {
  const auto model = make_olmoe();
  const auto sites = model->all_sites();
  EXPECT_EQ(sites.size(), 16u);
  const auto& down = sites.at("model.layers.1.mlp.experts.down_proj");
  EXPECT_EQ(down.experts, 6);
  EXPECT_EQ(down.in, 7);
  EXPECT_EQ(down.out, 12);
  EXPECT_EQ(down.moe_layer, "model.layers.1.mlp");
  EXPECT_EQ(down.role, lora::SiteRole::kExpert);
  EXPECT_EQ(down.modules[4], "model.layers.1.mlp.experts.4.down_proj");
  const auto& k = sites.at("model.layers.0.self_attn.k_proj");
  EXPECT_EQ(k.experts, 0);
  EXPECT_EQ(k.role, lora::SiteRole::kAttention);
  EXPECT_EQ(sites.at("model.layers.0.mlp.gate").role, lora::SiteRole::kRouter);
  EXPECT_EQ(k.out, 4);
  EXPECT_EQ(sites.at("model.layers.0.mlp.gate").out, 6);
  EXPECT_THROW(model->sites(std::vector<std::string>{"lm_head"}), Error);
}

TEST(Olmoe, UsesAsManyExpertsAsTheBudgetAndCountsEveryToken) {
  const auto model = make_olmoe();
  const data::PackedBatch batch = data::pack_ids(testing::kSequences);
  for (const int64_t k : {0, 1, 2, 6}) {
    nn::RoutingByLayer routing;
    ForwardOptions options;
    options.router.top_k = k;
    options.routing = {&routing, 1};
    model->hidden(batch, options);
    ASSERT_EQ(routing.size(), 2u);
    for (const auto& [layer, stats] : routing) {
      EXPECT_EQ(stats.tokens, batch.tokens());
      EXPECT_EQ(stats.counts.sum().item<int64_t>(), batch.tokens() * (k ? k : 3)) << layer;
      EXPECT_LE(stats.counts.max().item<int64_t>(), batch.tokens());
    }
  }
}

TEST(Olmoe, PhiAppliesToTheRouterOfItsLayer) {
  const auto model = make_olmoe();
  nn::RoutingByLayer routing;
  ForwardOptions options;
  options.router.top_k = 1;
  options.router.num_candidates = 6;
  options.router.modulation["model.layers.1.mlp"] = at::tensor({0.0, 0.0, 100.0, 0.0, 0.0, 0.0});
  options.routing = {&routing, 1};
  model->hidden(data::pack_ids(testing::kSequences), options);
  EXPECT_EQ(routing.at("model.layers.1.mlp").counts[2].item<int64_t>(), 11);
  EXPECT_LT(routing.at("model.layers.0.mlp").counts[2].item<int64_t>(), 11);
}

}  // namespace
}  // namespace evenkeel::models
