#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "models/causal_lm.h"
#include "models/testing.h"

namespace evenkeel::models {
namespace {

std::unique_ptr<CausalLm> make_olmo() { return testing::make_model("olmo", BaseDtype::kFloat32); }

TEST(Olmo, SitesHaveTheCheckpointsNames) {
  const auto model = make_olmo();
  const auto sites = model->all_sites();
  EXPECT_EQ(sites.size(), 14u);
  const auto& down = sites.at("model.layers.1.mlp.down_proj");
  EXPECT_EQ(down.experts, 0);
  EXPECT_EQ(down.in, 7);
  EXPECT_EQ(down.out, 12);
  EXPECT_EQ(down.moe_layer, "");
  EXPECT_EQ(down.role, lora::SiteRole::kMlp);
  EXPECT_EQ(sites.at("model.layers.0.self_attn.v_proj").out, 4);
  EXPECT_THROW(model->sites(std::vector<std::string>{"gate"}), Error);
}

TEST(Olmo, HasNoNormWeightsAndNoExperts) {
  const auto model = make_olmo();
  for (const auto& [name, tensor] : model->parameters()) EXPECT_EQ(tensor.dim(), 2) << name;
  EXPECT_EQ(model->parameters().size(), 1u + 2 * 7);
  EXPECT_EQ(model->spec().num_experts, 0);
  EXPECT_TRUE(model->spec().moe_layers.empty());
  nn::RoutingByLayer routing;
  ForwardOptions options;
  options.routing = {&routing, 1};
  model->hidden(data::pack_ids(testing::kSequences), options);
  EXPECT_TRUE(routing.empty());
}

TEST(Olmo, HiddenStatesHaveMeanZeroAndUnitVariance) {
  const auto x_TD = make_olmo()->hidden(data::pack_ids(testing::kSequences), {});
  EXPECT_LT(x_TD.mean(1).abs().max().item<double>(), 1e-6);
  EXPECT_LT((x_TD.square().mean(1) - 1).abs().max().item<double>(), 1e-3);
}

}  // namespace
}  // namespace evenkeel::models
