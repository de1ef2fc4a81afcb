#include "nn/linear.h"

#include "base/error.h"
#include "nn/kernels/frozen_matmul.h"
#include "nn/testing.h"

namespace evenkeel {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

TEST(Linear, EqualsTheWeightPlusTheLowRankProduct) {
  const auto x = random_tensor({7, 5}, 1), w = random_tensor({4, 5}, 2);
  const LoraFactors lora{random_tensor({3, 5}, 3), random_tensor({4, 3}, 4), random_tensor({3, 3}, 5), 0.7};
  const auto merged = w + 0.7 * at::mm(at::mm(lora.b, lora.core), lora.a);
  EXPECT_LT(max_difference(linear(x, w, {&lora}), at::mm(x, merged.t())), 1e-12);
  EXPECT_LT(max_difference(evenkeel::linear(x, w), at::mm(x, w.t())), 1e-12);
}

TEST(Linear, GradientsMatchCentralDifferencesWithAndWithoutCore) {
  for (const bool with_core : {false, true}) {
    std::vector<at::Tensor> inputs{random_tensor({6, 5}, 1), random_tensor({4, 5}, 2), random_tensor({3, 5}, 3),
                                   random_tensor({4, 3}, 4)};
    if (with_core) inputs.push_back(random_tensor({3, 3}, 5));
    expect_gradients_match(
        [&](const std::vector<at::Tensor>& in) {
          const LoraFactors lora{in[2], in[3], with_core ? in[4] : at::Tensor(), 1.3};
          return linear(in[0], in[1], {&lora});
        },
        inputs);
  }
}

TEST(Linear, AFrozenWeightGetsNoGradient) {
  const auto w = random_tensor({4, 5}, 2);
  const auto x = random_tensor({6, 5}, 1).requires_grad_(true);
  evenkeel::linear(x, w).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

TEST(Linear, WidenedHalfPrecisionWeightsGiveTheExactProductOfTheStoredValues) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto x = random_tensor({9, 33}, 1, at::kFloat), w = random_tensor({700, 33}, 2, dtype);
    EXPECT_LT(max_difference(kernels::frozen_matmul(x, w), at::mm(x, w.to(at::kFloat).t())), 1e-4);
    const auto dy = random_tensor({9, 700}, 3, at::kFloat);
    EXPECT_LT(max_difference(kernels::frozen_matmul_backward(dy, w), at::mm(dy, w.to(at::kFloat))), 1e-3);
  }
}

TEST(Linear, WeightsLargerThanAPanelAreWidenedInParts) {
  const auto x = random_tensor({2, 4100}, 1, at::kFloat), w = random_tensor({1100, 4100}, 2, at::kBFloat16);
  const auto dy = random_tensor({2, 1100}, 3, at::kFloat);
  EXPECT_LT(max_difference(kernels::frozen_matmul(x, w), at::mm(x, w.to(at::kFloat).t())), 1e-3);
  EXPECT_LT(max_difference(kernels::frozen_matmul_backward(dy, w), at::mm(dy, w.to(at::kFloat))), 1e-3);
}

TEST(Linear, TheNativePathIsCloseToTheWidenedOneAndLeavesSmallWeightsAlone) {
  const auto x = random_tensor({5, 512}, 1, at::kFloat), w = random_tensor({600, 512}, 2, at::kBFloat16);
  const auto exact = kernels::frozen_matmul(x, w);
  const auto native = kernels::frozen_matmul(x, w, MatmulPath::kNative);
  const bool small_is_native = kernels::takes_native_path(w.narrow(0, 0, 64), MatmulPath::kNative);
  EXPECT_LT(((native - exact).norm() / exact.norm()).item<double>(), 1e-2);
  EXPECT_FALSE(small_is_native);
}

TEST(Linear, RefusesFactorsThatDoNotFit) {
  const LoraFactors swapped{random_tensor({4, 3}, 3), random_tensor({3, 5}, 4), {}, 1};
  EXPECT_THROW(linear(random_tensor({6, 5}, 1), random_tensor({4, 5}, 2), {&swapped}), Error);
  EXPECT_THROW(evenkeel::linear(random_tensor({6, 4}, 1), random_tensor({4, 5}, 2)), Error);
}

}  // namespace
}  // namespace evenkeel
