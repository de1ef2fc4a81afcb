#include "nn/dense/frozen_weight.h"

#include "nn/kernels/matmul/matmul.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::max_difference;
using testing::random_tensor;

constexpr std::array kAllKernels{MatmulKernel::kFp32Exact, MatmulKernel::kUpcast, MatmulKernel::kBf16Vendor,
                                 MatmulKernel::kBf16Dot, MatmulKernel::kBf16Tile};

double difference_from(const at::Tensor& x, const at::Tensor& exact) {
  return ((x.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

TEST(FrozenWeight, ProductsUseTheStoredNumbersInEveryFormat) {
  const auto x = testing::random_tensor({9, 33}, 1, at::kFloat), dy = testing::random_tensor({9, 70}, 3, at::kFloat);
  const auto wide = testing::random_tensor({70, 33}, 2);
  for (const auto& w : {FrozenWeight(wide.to(at::kFloat)), FrozenWeight(wide.to(at::kBFloat16)),
                        FrozenWeight(wide.to(at::kHalf)), quantized(wide)})
    for (const auto kernel : kAllKernels) {
      const auto exact = w.widened(at::kDouble);
      EXPECT_LT(difference_from(matmul_nt(x, w, kernel), at::mm(x.to(at::kDouble), exact.t())), 1e-6);
      EXPECT_LT(difference_from(matmul_nn(dy, w, kernel), at::mm(dy.to(at::kDouble), exact)), 1e-6);
    }
}

TEST(FrozenWeight, Float64WeightsAreMultipliedInFloat64) {
  const auto x = testing::random_tensor({9, 33}, 1), w = testing::random_tensor({70, 33}, 2);
  EXPECT_LT(testing::max_difference(matmul_nt(x, w), at::mm(x, w.t())), 1e-12);
  EXPECT_LT(testing::max_difference(matmul_nn(testing::random_tensor({9, 70}, 3), w),
                                    at::mm(testing::random_tensor({9, 70}, 3), w)),
            1e-12);
}

TEST(FrozenWeight, WeightsLargerThanAPanelAreUpcastInParts) {
  const auto x = testing::random_tensor({2, 4100}, 1, at::kFloat),
             dy = testing::random_tensor({2, 1100}, 3, at::kFloat);
  const FrozenWeight w(testing::random_tensor({1100, 4100}, 2, at::kBFloat16));
  const auto exact = w.widened(at::kDouble);
  EXPECT_LT(difference_from(matmul_nt(x, w, MatmulKernel::kUpcast), at::mm(x.to(at::kDouble), exact.t())), 1e-6);
  EXPECT_LT(difference_from(matmul_nn(dy, w, MatmulKernel::kUpcast), at::mm(dy.to(at::kDouble), exact)), 1e-6);
}

TEST(FrozenWeight, RoundsActivationsOnlyForLargeWeightsInASupportedFormat) {
  const auto x = testing::random_tensor({5, 512}, 1, at::kFloat);
  const FrozenWeight large(testing::random_tensor({600, 512}, 2, at::kBFloat16));
  const FrozenWeight small(large.values_OI.narrow(0, 0, 64)), half(large.values_OI.to(at::kHalf)),
      int8 = quantized(large.values_OI);
  const auto is_rounded = [&](const FrozenWeight& w, MatmulKernel kernel) {
    const double difference = difference_from(matmul_nt(x, w, kernel), matmul_nt(x, w).to(at::kDouble));
    EXPECT_TRUE(difference == 0 || (difference > 1e-5 && difference < 1e-2)) << difference;
    return difference > 0;
  };
  for (const auto kernel : {MatmulKernel::kBf16Vendor, MatmulKernel::kBf16Dot, MatmulKernel::kBf16Tile}) {
    EXPECT_TRUE(is_rounded(large, kernel));
    EXPECT_FALSE(is_rounded(small, kernel));
    EXPECT_FALSE(is_rounded(half, kernel));
    EXPECT_EQ(is_rounded(int8, kernel), kernel != MatmulKernel::kBf16Vendor);
  }
}

// On a processor with AMX both kernels use the tile registers. Neither may disturb the other's results.
TEST(FrozenWeight, TileKernelAndVendorLibraryDoNotDisturbEachOther) {
  const auto x = testing::random_tensor({70, 512}, 1, at::kFloat);
  const FrozenWeight w(testing::random_tensor({600, 512}, 2, at::kBFloat16));
  const auto tiles = matmul_nt(x, w, MatmulKernel::kBf16Tile), native = matmul_nt(x, w, MatmulKernel::kBf16Vendor);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(matmul_nt(x, w, MatmulKernel::kBf16Tile), tiles));
    EXPECT_TRUE(at::equal(matmul_nt(x, w, MatmulKernel::kBf16Vendor), native));
  }
  EXPECT_LT(difference_from(native, tiles.to(at::kDouble)), 0.01);
}

TEST(FrozenWeight, Int8ErrorIsAtMostHalfAStepOfTheRowScale) {
  auto w = testing::random_tensor({7, 40}, 2, at::kBFloat16);
  w[3].zero_();
  w[5].mul_(1e-4);
  const auto q = quantized(w);
  EXPECT_EQ(q.values_OI.scalar_type(), at::kChar);
  EXPECT_EQ(q.bytes(), 7 * 40 + 7 * 4);
  const auto error = (q.widened(at::kDouble) - w.to(at::kDouble)).abs();
  EXPECT_TRUE(error.le(q.scales_O.to(at::kDouble).unsqueeze(1) * 0.5001).all().item<bool>());
  EXPECT_EQ(q.widened(at::kFloat)[3].abs().max().item<float>(), 0.0f);
  EXPECT_EQ(q.values_OI.abs().amax(1)[5].item<int64_t>(), 127);
}

TEST(MatmulTable, StoresAKernelPerContextDirectionAndRowBucket) {
  MatmulTable table(MatmulKernel::kUpcast);
  table.set(GemmContext::kLinear, Direction::kBackward, 64, MatmulKernel::kBf16Vendor);
  for (const int64_t rows : {64, 65, 127})
    EXPECT_EQ(table.at(GemmContext::kLinear, Direction::kBackward, rows), MatmulKernel::kBf16Vendor) << rows;
  for (const int64_t rows : {0, 1, 63, 128, 5000})
    EXPECT_EQ(table.at(GemmContext::kLinear, Direction::kBackward, rows), MatmulKernel::kUpcast) << rows;
  EXPECT_EQ(table.at(GemmContext::kExpert, Direction::kBackward, 64), MatmulKernel::kUpcast);
  EXPECT_EQ(table.at(GemmContext::kLinear, Direction::kForward, 64), MatmulKernel::kUpcast);
  EXPECT_NE(table, MatmulTable(MatmulKernel::kUpcast));
}

}  // namespace
}  // namespace evenkeel::nn
