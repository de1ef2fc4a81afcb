#include "train/gradient_bias.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace evenkeel::train {
namespace {

/// Gradients of 5 experts in two tensors, [5, 2, 3] and [5, 4, 2], on 11 tokens of which each chose two experts.
LayerGradients some_gradients(uint64_t seed, const std::vector<int64_t>& counts) {
  at::manual_seed(seed);
  LayerGradients layer{.counts_E = at::tensor(counts, at::kLong), .tokens = 11};
  for (const auto& shape : {std::vector<int64_t>{5, 2, 3}, std::vector<int64_t>{5, 4, 2}}) {
    layer.factors.push_back(at::randn(shape, at::kDouble));
    for (int64_t e = 0; e < 5; ++e)
      if (counts[static_cast<size_t>(e)] == 0) layer.factors.back()[e].zero_();
  }
  return layer;
}

/// Sums `term(x, y, expert)` over all elements, one by one.
template <typename Term>
double summed(const LayerGradients& full, const LayerGradients& sparse, const Term& term) {
  double sum = 0;
  for (size_t t = 0; t < full.factors.size(); ++t)
    for (int64_t e = 0; e < 5; ++e) {
      const auto x = full.factors[t][e].flatten(), y = sparse.factors[t][e].flatten();
      for (int64_t i = 0; i < x.numel(); ++i) sum += term(x[i].item<double>(), y[i].item<double>(), e);
    }
  return sum;
}

TEST(GradientBias, MeasuresAreTheirFormulas) {
  const std::vector<int64_t> counts = {3, 0, 8, 11, 0};
  const auto full = some_gradients(1, {9, 4, 9, 11, 0}), sparse = some_gradients(2, counts);
  const auto found = measures_of(bias_sums(full, sparse, 0.25));
  const double square = summed(full, sparse, [](double x, double, int64_t) { return x * x; });
  const auto active = [&](int64_t e) { return counts[static_cast<size_t>(e)] > 0; };
  const auto bias_where = [&](bool wanted) {
    return summed(full, sparse,
                  [&](double x, double y, int64_t e) { return active(e) == wanted ? (x - y) * (x - y) : 0; });
  };
  const double predicted = summed(full, sparse, [&](double x, double, int64_t e) {
    const double missed = 1 - static_cast<double>(counts[static_cast<size_t>(e)]) / 11;
    return missed * missed * x * x;
  });
  const double product = summed(full, sparse, [](double x, double y, int64_t) { return x * y; });
  const double own = summed(full, sparse, [](double, double y, int64_t) { return y * y; });
  const double square_active = summed(full, sparse, [&](double x, double, int64_t e) { return active(e) ? x * x : 0; });
  EXPECT_NEAR(*found.bias, (bias_where(true) + bias_where(false)) / square, 1e-12);
  EXPECT_NEAR(*found.bias_active, bias_where(true) / square, 1e-12);
  EXPECT_NEAR(*found.bias_idle, bias_where(false) / square, 1e-12);
  EXPECT_NEAR(*found.predicted, predicted / square, 1e-12);
  EXPECT_NEAR(*found.cosine, product / std::sqrt(square * own), 1e-12);
  EXPECT_NEAR(*found.cosine_active, product / std::sqrt(square_active * own), 1e-12);
  EXPECT_DOUBLE_EQ(*found.idle_experts, 0.4);
}

TEST(GradientBias, EqualGradientsHaveNone) {
  const auto full = some_gradients(3, {9, 4, 9, 0, 0});
  const auto found = measures_of(bias_sums(full, full));
  EXPECT_EQ(found.bias, 0);
  EXPECT_EQ(found.bias_idle, 0) << "an expert without a token has no gradient";
  EXPECT_DOUBLE_EQ(*found.cosine, 1);
  EXPECT_DOUBLE_EQ(*found.cosine_active, 1);
}

TEST(GradientBias, ARatioToZeroIsNone) {
  const auto full = some_gradients(3, {0, 0, 0, 0, 0});
  const auto found = measures_of(bias_sums(full, full));
  for (const auto& measure : kBiasMeasures)
    EXPECT_EQ((found.*measure.value).has_value(), measure.name == "idle_experts") << measure.name;
}

TEST(GradientBias, SumsOfLayersAddUpAndCanBeTakenBack) {
  const auto one = bias_sums(some_gradients(4, {1, 1, 1, 1, 0}), some_gradients(5, {2, 0, 0, 9, 0}));
  const auto two = bias_sums(some_gradients(6, {1, 1, 1, 1, 1}), some_gradients(7, {0, 0, 11, 11, 0}));
  auto sum = one;
  sum.add(two);
  EXPECT_NEAR(sum.bias_active, one.bias_active + two.bias_active, 1e-12);
  EXPECT_EQ(sum.experts, 10);
  EXPECT_EQ(sum.idle, 6);
  sum.add(two, -1);
  EXPECT_NEAR(*measures_of(sum).cosine, *measures_of(one).cosine, 1e-12);
}

TEST(GradientBias, GradientsAddUpByLayer) {
  const ExpertGradientSums one{{"a", some_gradients(4, {1, 2, 3, 4, 0})}},
      two{{"a", some_gradients(5, {2, 0, 0, 9, 0})}};
  ExpertGradientSums sum;
  add_to(sum, one);
  add_to(sum, two);
  EXPECT_TRUE(at::allclose(sum.at("a").factors[1], one.at("a").factors[1] + two.at("a").factors[1]));
  EXPECT_TRUE(at::equal(sum.at("a").counts_E, at::tensor(std::vector<int64_t>{3, 2, 3, 13, 0}, at::kLong)));
  EXPECT_EQ(sum.at("a").tokens, 22);
  add_to(sum, two, -1);
  EXPECT_TRUE(at::allclose(sum.at("a").factors[0], one.at("a").factors[0]));
  EXPECT_TRUE(at::equal(sum.at("a").counts_E, one.at("a").counts_E));
}

}  // namespace
}  // namespace evenkeel::train
