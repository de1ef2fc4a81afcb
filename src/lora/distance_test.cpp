#include "lora/distance.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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

TEST(SquaredDistance, OfComparableTensorsHasTheSameBits) {
  at::manual_seed(5);
  std::vector<at::Tensor> tensors;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (const auto& x : {at::randn({41, 503}, at::kDouble), at::randn({503, 41}, at::kDouble).t()})
      tensors.push_back(x.to(type));
  for (const auto& x : tensors) {
    EXPECT_TRUE(comparable(x).is_contiguous());
    EXPECT_EQ(comparable(x).scalar_type(), x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    for (const auto& y : tensors) EXPECT_EQ(squared_distance(comparable(x), comparable(y)), squared_distance(x, y));
    EXPECT_EQ(squared_distance(comparable(x), {}), squared_distance(x, {}));
  }
  EXPECT_EQ(comparable(tensors[0]).const_data_ptr(), tensors[0].const_data_ptr()) << "nothing to convert";
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
