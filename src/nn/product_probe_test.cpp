#include "nn/product_probe.h"

#include <gtest/gtest.h>

namespace evenkeel {
namespace {

TEST(ProductProbe, LeavesOurOwnKernelsOnlyForWhatIsClearlyFaster) {
  const auto cell = [](double own, double widen, double native, double dot = 0) {
    return MeasuredProduct{.place = ProductPlace::kLinear,
                           .direction = Direction::kBackward,
                           .rows = 16,
                           .gflops = {own, widen, native, dot}};
  };
  EXPECT_EQ(cell(100, 105, 20).chosen(), ProductKernel::kOwn);
  EXPECT_EQ(cell(100, 111, 20).chosen(), ProductKernel::kWiden);
  EXPECT_EQ(cell(100, 111, 180).chosen(), ProductKernel::kNative);
  EXPECT_EQ(cell(100, 20, 20, 109).chosen(), ProductKernel::kOwn);
  EXPECT_EQ(cell(100, 20, 180, 170).chosen(), ProductKernel::kDot);
  EXPECT_EQ(cell(100, 20, 190, 170).chosen(), ProductKernel::kNative);
  const auto table = fastest_products({cell(100, 111, 20)});
  EXPECT_EQ(table.at(ProductPlace::kLinear, Direction::kBackward, 20), ProductKernel::kWiden);
  EXPECT_EQ(table.at(ProductPlace::kLinear, Direction::kForward, 20), ProductKernel::kOwn);
}

}  // namespace
}  // namespace evenkeel
