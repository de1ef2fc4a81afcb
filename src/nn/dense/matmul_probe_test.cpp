#include "nn/dense/matmul_probe.h"

#include <gtest/gtest.h>

#include "base/system/dispatch.h"

namespace evenkeel::nn {
namespace {

TEST(ProductProbe, ChoosesALibraryKernelOnlyIfClearlyFaster) {
  const auto cell = [](double own, double widen, double native, double dot = 0, double tile = 0) {
    return MeasuredMatmul{.context = GemmContext::kLinear,
                          .direction = Direction::kBackward,
                          .rows = 16,
                          .gflops = {own, widen, native, dot, tile}};
  };
  EXPECT_EQ(cell(100, 105, 20).chosen(), MatmulKernel::kFp32Exact);
  EXPECT_EQ(cell(100, 111, 20).chosen(), MatmulKernel::kUpcast);
  EXPECT_EQ(cell(100, 111, 180).chosen(), MatmulKernel::kBf16Vendor);
  EXPECT_EQ(cell(100, 20, 20, 109).chosen(), MatmulKernel::kFp32Exact);
  EXPECT_EQ(cell(100, 20, 180, 170).chosen(), MatmulKernel::kBf16Dot);
  EXPECT_EQ(cell(100, 20, 190, 170).chosen(), MatmulKernel::kBf16Vendor);
  EXPECT_EQ(cell(100, 20, 185, 170, 180).chosen(), MatmulKernel::kBf16Dot);
  EXPECT_EQ(cell(100, 20, 200, 170, 190).chosen(), MatmulKernel::kBf16Tile);
  const auto table = fastest_kernels({cell(100, 111, 20)});
  EXPECT_EQ(table.at(GemmContext::kLinear, Direction::kBackward, 20), MatmulKernel::kUpcast);
  EXPECT_EQ(table.at(GemmContext::kLinear, Direction::kForward, 20), MatmulKernel::kFp32Exact);
}

TEST(ProductProbe, MeasuresOnlyKernelsThatSupportInt8) {
  for (const auto& cell : measure_matmuls(at::kChar)) {
    const auto gflops = [&](MatmulKernel kernel) { return cell.gflops[static_cast<size_t>(kernel)]; };
    EXPECT_GT(gflops(MatmulKernel::kFp32Exact), 0);
    EXPECT_EQ(gflops(MatmulKernel::kBf16Dot) > 0, has_bfloat16_dots());
    EXPECT_EQ(gflops(MatmulKernel::kBf16Tile) > 0, has_bfloat16_tiles());
    EXPECT_EQ(gflops(MatmulKernel::kBf16Vendor), 0);
    EXPECT_EQ(gflops(MatmulKernel::kUpcast), 0);
  }
}

}  // namespace
}  // namespace evenkeel::nn
