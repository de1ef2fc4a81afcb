#include "lora/distance.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/plain/error.h"

namespace evenkeel::lora {
namespace {

TEST(SquaredDistance, EqualsTheSumOfSquares) {
  const auto x = at::tensor({1.0f, -2.0f, 3.0f, 0.5f, 4.0f, 1.0f}).view({2, 3});
  const auto y = at::tensor({0.0f, 1.0f, 3.0f, -0.5f, 2.0f, 1.0f}).view({2, 3});
  EXPECT_DOUBLE_EQ(squared_distance(x, y), 1 + 9 + 0 + 1 + 4 + 0);
  EXPECT_DOUBLE_EQ(squared_distance(x, {}), 1 + 4 + 9 + 0.25 + 16 + 1);
  EXPECT_DOUBLE_EQ(squared_distance(x.to(at::kBFloat16), y.to(at::kDouble)), 15);
  EXPECT_EQ(squared_distance(at::zeros({0, 3}), {}), 0);
}

TEST(SquaredDistance, BitsDoNotDependOnTheNumberOfThreads) {
  at::manual_seed(3);
  const auto x = at::randn({37, 5003}), y = at::randn({37, 5003});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double alone = squared_distance(x, y);
  at::set_num_threads(4);
  EXPECT_EQ(squared_distance(x, y), alone);
  at::set_num_threads(threads);
  EXPECT_NEAR(alone, (x.to(at::kDouble) - y.to(at::kDouble)).square().sum().item<double>(), 1e-6 * alone);
}

TEST(SquaredDistance, OfOtherShapesIsRefused) {
  EXPECT_THROW(squared_distance(at::ones({2, 3, 5}), at::zeros({2, 4, 5})), Error);
}

TEST(SquaredDistance, IsNotFiniteWhereAValueIsNot) {
  auto x = at::ones({3, 4});
  x[1][2] = NAN;
  EXPECT_FALSE(std::isfinite(squared_distance(x, {})));
}

}  // namespace
}  // namespace evenkeel::lora
