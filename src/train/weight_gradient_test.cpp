// Compares the gradient of a frozen weight with central differences of the loss, in float64.
#include "train/weight_gradient.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/testing.h"

namespace evenkeel::train {
namespace {

constexpr int64_t kBatch = 2;

std::vector<data::Example> rows() {
  return {{.ids = {3, 17, 42, 8, 11, 29}, .first_target = 2},
          {.ids = {5, 9, 60, 33}, .first_target = 1},
          {.ids = {44, 2, 2, 13, 51}, .first_target = 3}};
}

/// Returns the sum over micro-batches of the mean loss per target.
double loss(const models::CausalLm& model, const nn::RouterOptions& router) {
  const auto examples = rows();
  double sum = 0;
  for (size_t first = 0; first < examples.size(); first += kBatch) {
    const auto count = std::min<size_t>(kBatch, examples.size() - first);
    const auto part = model.loss(data::pack(std::span(examples).subspan(first, count)), {.router = router});
    sum += part.sum.item<double>() / static_cast<double>(part.count);
  }
  return sum;
}

/// Returns d loss / d weight[row][column] by a central difference.
double slope(const models::CausalLm& model, const std::string& weight, int64_t row, int64_t column,
             const nn::RouterOptions& router) {
  constexpr double kStep = 1e-6;
  auto entry = model.parameters().at(weight).select(0, row).select(0, column);
  const double value = entry.item<double>();
  entry.fill_(value + kStep);
  const double above = loss(model, router);
  entry.fill_(value - kStep);
  const double below = loss(model, router);
  entry.fill_(value);
  return (above - below) / (2 * kStep);
}

at::Tensor gradient(const models::CausalLm& model, const std::string& site, const nn::RouterOptions& router) {
  const auto examples = rows();
  std::vector<const data::Example*> pointers;
  for (const auto& example : examples) pointers.push_back(&example);
  const std::vector<std::string> targets{"q_proj", "gate", "gate_proj", "up_proj", "down_proj"};
  return weight_gradients(model, {{site, model.sites(targets).at(site)}}, {pointers, kBatch, router}).at(site);
}

class WeightGradient : public ::testing::TestWithParam<nn::RouterOptions> {
 protected:
  const std::unique_ptr<models::CausalLm> model = testing::random_model(9, 67, models::BaseDtype::kFloat64);
};

TEST_P(WeightGradient, GradientOfAnExpertEqualsTheDifferenceQuotient) {
  for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
    const auto g_EOI = gradient(*model, "model.layers.0.mlp.experts." + name, GetParam());
    int64_t unused = 0;
    for (int64_t e = 0; e < g_EOI.size(0); ++e) {
      unused += g_EOI[e].eq(0).all().item<bool>() ? 1 : 0;
      for (const auto& [row, column] : {std::pair<int64_t, int64_t>{0, 1}, {7, 12}, {19, 5}}) {
        const auto weight = concat("model.layers.0.mlp.experts.", e, ".", name, ".weight");
        const double expected = slope(*model, weight, row, column, GetParam());
        EXPECT_NEAR(g_EOI[e][row][column].item<double>(), expected, 1e-6 + 1e-5 * std::abs(expected)) << weight;
      }
    }
    EXPECT_LT(unused, g_EOI.size(0)) << "no expert is used";
  }
}

TEST_P(WeightGradient, GradientOfAttentionAndRouterEqualsTheDifferenceQuotient) {
  for (const std::string site : {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.gate"}) {
    const auto g_OI = gradient(*model, site, GetParam());
    for (const auto& [row, column] : {std::pair<int64_t, int64_t>{0, 1}, {3, 20}, {4, 11}}) {
      const double expected = slope(*model, site + ".weight", row, column, GetParam());
      EXPECT_NEAR(g_OI[row][column].item<double>(), expected, 1e-6 + 1e-5 * std::abs(expected)) << site;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Routing, WeightGradient,
                         ::testing::Values(nn::RouterOptions{}, nn::RouterOptions{.top_k = 1},
                                           nn::RouterOptions{.top_k = 2, .gate_norm = nn::GateNorm::kRenormSelected}));

// Fed-SB starts with the gradients of every site, one layer at a time.
TEST(WeightGradients, GradientsOfManySitesEqualThoseOfEachSite) {
  const auto model = testing::random_model(9);
  const std::vector<std::string> targets{"q_proj", "gate", "gate_proj", "up_proj", "down_proj"};
  const auto examples = rows();
  std::vector<const data::Example*> pointers;
  for (const auto& example : examples) pointers.push_back(&example);
  const auto sites = model->sites(targets);
  const auto together = weight_gradients(*model, sites, {pointers, kBatch, {.top_k = 2}});
  EXPECT_EQ(together.size(), sites.size());
  for (const auto& [site, g] : together) EXPECT_TRUE(g.equal(gradient(*model, site, {.top_k = 2}))) << site;
}

TEST(WeightGradients, DependOnHowRowsAreRouted) {
  const auto model = testing::random_model(9);
  const std::string site = "model.layers.0.mlp.experts.up_proj";
  const auto all = gradient(*model, site, {}), one = gradient(*model, site, {.top_k = 1});
  EXPECT_GT((all - one).abs().max().item<double>(), 1e-2 * all.abs().max().item<double>());
}

}  // namespace
}  // namespace evenkeel::train
