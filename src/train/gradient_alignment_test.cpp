#include "train/gradient_alignment.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace evenkeel::train {
namespace {

/// Gradients of 5 experts in two tensors, [5, 2, 3] and [5, 4, 2].
ExpertGradients example(std::vector<int64_t> idle, uint64_t seed) {
  at::manual_seed(seed);
  ExpertGradients layer{.layer = "layer", .idle_E = at::zeros({5}, at::kBool), .gradients = {}};
  for (const int64_t e : idle) layer.idle_E[e].fill_(true);
  for (const auto& shape : {std::vector<int64_t>{5, 2, 3}, std::vector<int64_t>{5, 4, 2}}) {
    layer.gradients.push_back(at::randn(shape));
    layer.pseudo_gradients.push_back(at::randn(shape));
  }
  return layer;
}

/// The cosine over the elements of the chosen experts, one by one.
double cosine_of(const std::vector<std::pair<ExpertGradients, std::vector<int64_t>>>& layers) {
  double product = 0, gradient = 0, pseudo = 0;
  for (const auto& [layer, experts] : layers)
    for (const int64_t e : experts)
      for (size_t t = 0; t < layer.gradients.size(); ++t) {
        const auto g = layer.gradients[t][e].flatten(), p = layer.pseudo_gradients[t][e].flatten();
        for (int64_t i = 0; i < g.numel(); ++i) {
          const double x = g[i].item<float>(), y = p[i].item<float>();
          product += x * y, gradient += x * x, pseudo += y * y;
        }
      }
  return product / std::sqrt(gradient * pseudo);
}

TEST(GradientAlignment, IsTheCosineOverIdleExpertsThatHaveAGradient) {
  auto one = example({0, 2, 3}, 1), two = example({4}, 2);
  for (auto& tensor : one.gradients) tensor[2].zero_();
  for (auto& tensor : two.pseudo_gradients) tensor[4].zero_();
  const auto found = gradient_alignment(std::vector{one, two}, 7);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].idle, 3);
  EXPECT_EQ(found[0].compared, 2);
  EXPECT_EQ(found[0].zero, 0);
  EXPECT_NEAR(found[0].cosine.value(), cosine_of({{one, {0, 3}}}), 1e-12);
  EXPECT_EQ(found[1].compared, 1);
  EXPECT_EQ(found[1].zero, 1);
  EXPECT_FALSE(found[1].cosine.has_value());
  EXPECT_EQ(found[2].layer, "all");
  EXPECT_EQ(found[2].compared, 3);
  EXPECT_NEAR(found[2].cosine.value(), cosine_of({{one, {0, 3}}, {two, {4}}}), 1e-12);
}

TEST(GradientAlignment, TwoExpertsHaveOneShuffle) {
  const auto layer = example({1, 4}, 3);
  auto swapped = layer;
  for (auto& tensor : swapped.pseudo_gradients) {
    tensor = tensor.clone();
    const auto first = tensor[1].clone();
    tensor[1].copy_(tensor[4]);
    tensor[4].copy_(first);
  }
  const auto shuffled = gradient_alignment(std::vector{layer}, 7)[0].shuffled.value();
  const double expected = cosine_of({{swapped, {1, 4}}});
  EXPECT_NEAR(shuffled.mean, expected, 1e-12);
  EXPECT_NEAR(shuffled.least, expected, 1e-12);
  EXPECT_NEAR(shuffled.most, expected, 1e-12);
  EXPECT_FALSE(gradient_alignment(std::vector{example({1}, 3)}, 7)[0].shuffled.has_value());
}

TEST(GradientAlignment, ShufflesAreDrawnByTheSeed) {
  const std::vector layers{example({0, 1, 2, 3}, 5)};
  const auto mean = [&](uint64_t seed) { return gradient_alignment(layers, seed)[0].shuffled.value().mean; };
  EXPECT_EQ(mean(7), mean(7));
  EXPECT_NE(mean(7), mean(8));
}

}  // namespace
}  // namespace evenkeel::train
