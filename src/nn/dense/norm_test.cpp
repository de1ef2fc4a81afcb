#include "nn/dense/norm.h"

#include "base/plain/error.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

at::Tensor standardised(const at::Tensor& x, double eps) {
  const auto centred = x - x.mean(1, true);
  return centred / (centred.pow(2).mean(1, true) + eps).sqrt();
}

TEST(LayerNorm, HasZeroMeanAndUnitVarianceBeforeWeightAndBias) {
  const auto x = testing::random_tensor({6, 37}, 1) * 5 + 3, w = testing::random_tensor({37}, 2),
             b = testing::random_tensor({37}, 3);
  const auto plain = standardised(x, 1e-5);
  EXPECT_LT(testing::max_difference(layer_norm(x, w, b, 1e-5), w * plain + b), 1e-12);
  EXPECT_LT(testing::max_difference(layer_norm(x, w, {}, 1e-5), w * plain), 1e-12);
  EXPECT_LT(testing::max_difference(layer_norm(x, {}, {}, 1e-5), plain), 1e-12);
}

TEST(LayerNorm, ComputesInTheDtypeOfTheInput) {
  const auto x = testing::random_tensor({6, 37}, 1), w = testing::random_tensor({37}, 2, at::kBFloat16);
  const auto y = layer_norm(x.to(at::kFloat), w, w, 1e-12);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_LT(testing::max_difference(y, layer_norm(x, w.to(at::kDouble), w.to(at::kDouble), 1e-12)), 1e-5);
}

TEST(LayerNorm, GradientsMatchCentralDifferences) {
  testing::expect_gradients_match(
      [](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); },
      {testing::random_tensor({3, 19}, 1), testing::random_tensor({19}, 2), testing::random_tensor({19}, 3)});
  testing::expect_gradients_match([](const auto& in) { return layer_norm(in[0], {}, {}, 1e-5); },
                                  {testing::random_tensor({3, 19}, 1)});
}

TEST(LayerNorm, RejectsAWeightOfAnotherWidth) {
  EXPECT_THROW(layer_norm(testing::random_tensor({3, 4}, 1), testing::random_tensor({3}, 2), {}, 1e-5), Error);
  EXPECT_THROW(layer_norm(testing::random_tensor({3, 4}, 1), {}, testing::random_tensor({5}, 2), 1e-5), Error);
}

}  // namespace
}  // namespace evenkeel::nn
