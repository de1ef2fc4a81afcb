#include "nn/dense/linear.h"

#include <torch/csrc/autograd/autograd.h>

#include "base/plain/error.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

TEST(Linear, EqualsTheWeightPlusTheLowRankProduct) {
  const auto x = testing::random_tensor({7, 5}, 1), w = testing::random_tensor({4, 5}, 2);
  const lora::LoraFactors lora{testing::random_tensor({3, 5}, 3), testing::random_tensor({4, 3}, 4),
                               testing::random_tensor({3, 3}, 5), 0.7};
  const auto merged = w + 0.7 * at::mm(at::mm(lora.b, lora.core), lora.a);
  EXPECT_LT(testing::max_difference(linear(x, w, {&lora}), at::mm(x, merged.t())), 1e-12);
  EXPECT_LT(testing::max_difference(nn::linear(x, w), at::mm(x, w.t())), 1e-12);
}

TEST(Linear, GradientsMatchCentralDifferencesWithAndWithoutCore) {
  for (const bool with_core : {false, true}) {
    std::vector<at::Tensor> inputs{testing::random_tensor({6, 5}, 1), testing::random_tensor({4, 5}, 2),
                                   testing::random_tensor({3, 5}, 3), testing::random_tensor({4, 3}, 4)};
    if (with_core) inputs.push_back(testing::random_tensor({3, 3}, 5));
    testing::expect_gradients_match(
        [&](const std::vector<at::Tensor>& in) {
          const lora::LoraFactors lora{in[2], in[3], with_core ? in[4] : at::Tensor(), 1.3};
          return linear(in[0], in[1], {&lora});
        },
        inputs);
  }
}

TEST(Linear, AFrozenWeightGetsNoGradient) {
  const auto w = testing::random_tensor({4, 5}, 2);
  const auto x = testing::random_tensor({6, 5}, 1).requires_grad_(true);
  nn::linear(x, w).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

// Only every fourth row of dy is not zero, as in a last layer whose loss covers answers only.
TEST(Linear, SkippingRowsWithoutAGradientDoesNotChangeResults) {
  const int64_t rows = 12, in = 5, out = 4, rank = 3;
  const auto x = testing::random_tensor({rows, in}, 1), w = testing::random_tensor({out, in}, 2);
  auto dy = testing::random_tensor({rows, out}, 6);
  for (int64_t t = 0; t < rows; ++t)
    if (t % 4 != 1) dy[t].zero_();
  const lora::LoraFactors lora{testing::random_tensor({rank, in}, 3).requires_grad_(true),
                               testing::random_tensor({out, rank}, 4).requires_grad_(true),
                               {},
                               0.7};
  const auto x_leaf = x.clone().requires_grad_(true);
  linear(x_leaf, w, {&lora}).backward(dy);
  EXPECT_LT(testing::max_difference(x_leaf.grad(), at::mm(dy, w + 0.7 * at::mm(lora.b, lora.a))), 1e-12);
  EXPECT_LT(testing::max_difference(lora.a.grad(), 0.7 * at::mm(at::mm(dy, lora.b).t(), x)), 1e-12);
  EXPECT_LT(testing::max_difference(lora.b.grad(), 0.7 * at::mm(dy.t(), at::mm(x, lora.a.t()))), 1e-12);
}

TEST(Linear, ExistingGradientsAreAccumulatedInPlace) {
  const auto x = testing::random_tensor({6, 5}, 1), w = testing::random_tensor({4, 5}, 2);
  const lora::LoraFactors lora{testing::random_tensor({3, 5}, 3).requires_grad_(true),
                               testing::random_tensor({4, 3}, 4).requires_grad_(true),
                               {},
                               1.3};
  linear(x, w, {&lora}).sum().backward();
  const auto once = lora.a.grad().clone();
  const void* address = lora.a.grad().const_data_ptr();
  linear(x, w, {&lora}).sum().backward();
  EXPECT_EQ(lora.a.grad().const_data_ptr(), address);
  EXPECT_LT(testing::max_difference(lora.a.grad(), 2 * once), 1e-12);
}

TEST(Linear, AutogradGradDoesNotChangeLeafGradients) {
  const auto x = testing::random_tensor({6, 5}, 1), w = testing::random_tensor({4, 5}, 2);
  const lora::LoraFactors lora{testing::random_tensor({3, 5}, 3).requires_grad_(true),
                               testing::random_tensor({4, 3}, 4).requires_grad_(true),
                               {},
                               1.3};
  lora.a.mutable_grad() = at::ones_like(lora.a);
  const auto chosen = torch::autograd::grad({linear(x, w, {&lora}).sum()}, {lora.a});
  EXPECT_GT(chosen[0].abs().max().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(lora.a.grad(), at::ones_like(lora.a)));
}

TEST(Linear, A16BitChangeIsUsedWithoutConversion) {
  const FrozenWeight w(testing::random_tensor({9, 14}, 2, at::kBFloat16));
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const lora::LoraFactors narrow{
        testing::random_tensor({5, 14}, 3, dtype), testing::random_tensor({9, 5}, 4, dtype), {}, 1};
    const lora::LoraFactors wide{narrow.a.to(at::kFloat), narrow.b.to(at::kFloat), {}, 1};
    std::vector<at::Tensor> y, dx;
    for (const auto* change : {&narrow, &wide}) {
      const auto x = testing::random_tensor({7, 14}, 1, at::kFloat).requires_grad_(true);
      y.push_back(linear(x, w, {.change = change}));
      y.back().pow(2).sum().backward();
      dx.push_back(x.grad());
    }
    EXPECT_TRUE(at::equal(y[0], y[1]) && at::equal(dx[0], dx[1]));
    EXPECT_GT(testing::max_difference(y[0], linear(testing::random_tensor({7, 14}, 1, at::kFloat), w)), 0.1);
  }
}

TEST(Linear, BitsOfTheBuiltInKernelsDoNotDependOnThreads) {
  const int64_t rows = 70, in = 300, out = 260, rank = 5;
  const auto w = testing::random_tensor({out, in}, 2, at::kBFloat16);
  const auto run = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const auto x = testing::random_tensor({rows, in}, 1, at::kFloat).requires_grad_(true);
    const lora::LoraFactors lora{testing::random_tensor({rank, in}, 3, at::kFloat).requires_grad_(true),
                                 testing::random_tensor({out, rank}, 4, at::kFloat).requires_grad_(true),
                                 {},
                                 0.7};
    const auto y = linear(x, w, {&lora});
    y.pow(2).sum().backward();
    at::set_num_threads(before);
    return std::vector<at::Tensor>{y.detach(), x.grad(), lora.a.grad(), lora.b.grad()};
  };
  const auto one = run(1);
  for (const int threads : {2, 3, 16}) {
    const auto several = run(threads);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], several[i])) << threads << " threads, " << i;
  }
}

TEST(Linear, RejectsFactorsOfOtherShapes) {
  const lora::LoraFactors swapped{testing::random_tensor({4, 3}, 3), testing::random_tensor({3, 5}, 4), {}, 1};
  EXPECT_THROW(linear(testing::random_tensor({6, 5}, 1), testing::random_tensor({4, 5}, 2), {&swapped}), Error);
  EXPECT_THROW(nn::linear(testing::random_tensor({6, 4}, 1), testing::random_tensor({4, 5}, 2)), Error);
}

}  // namespace
}  // namespace evenkeel::nn
