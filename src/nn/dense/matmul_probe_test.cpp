#include "nn/dense/matmul_probe.h"

#include <gtest/gtest.h>

#include "base/system/dispatch.h"

namespace evenkeel {
namespace {

TEST(ProductProbe, LeavesOurOwnKernelsOnlyForWhatIsClearlyFaster) {
  const auto cell = [](double own, double widen, double native, double dot = 0, double tile = 0) {
    return MeasuredProduct{.place = ProductPlace::kLinear,
                           .direction = Direction::kBackward,
                           .rows = 16,
                           .gflops = {own, widen, native, dot, tile}};
  };
  EXPECT_EQ(cell(100, 105, 20).chosen(), ProductKernel::kOwn);
  EXPECT_EQ(cell(100, 111, 20).chosen(), ProductKernel::kWiden);
  EXPECT_EQ(cell(100, 111, 180).chosen(), ProductKernel::kNative);
  EXPECT_EQ(cell(100, 20, 20, 109).chosen(), ProductKernel::kOwn);
  EXPECT_EQ(cell(100, 20, 180, 170).chosen(), ProductKernel::kDot);
  EXPECT_EQ(cell(100, 20, 190, 170).chosen(), ProductKernel::kNative);
  EXPECT_EQ(cell(100, 20, 185, 170, 180).chosen(), ProductKernel::kDot);
  EXPECT_EQ(cell(100, 20, 200, 170, 190).chosen(), ProductKernel::kTile);
  const auto table = fastest_products({cell(100, 111, 20)});
  EXPECT_EQ(table.at(ProductPlace::kLinear, Direction::kBackward, 20), ProductKernel::kWiden);
  EXPECT_EQ(table.at(ProductPlace::kLinear, Direction::kForward, 20), ProductKernel::kOwn);
}

TEST(ProductProbe, TriesOnInt8WhatTakesInt8) {
  for (const auto& cell : measure_products(at::kChar)) {
    const auto gflops = [&](ProductKernel kernel) { return cell.gflops[static_cast<size_t>(kernel)]; };
    EXPECT_GT(gflops(ProductKernel::kOwn), 0);
    EXPECT_EQ(gflops(ProductKernel::kDot) > 0, has_bfloat16_dots());
    EXPECT_EQ(gflops(ProductKernel::kTile) > 0, has_bfloat16_tiles());
    EXPECT_EQ(gflops(ProductKernel::kNative), 0);
    EXPECT_EQ(gflops(ProductKernel::kWiden), 0);
  }
}

}  // namespace
}  // namespace evenkeel
