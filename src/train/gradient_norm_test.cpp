#include "train/gradient_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <limits>

#include "nn/engines/engine_of.h"

namespace evenkeel::train {
namespace {

/// Returns parameters with gradients, the last without one. 7 x 10,003 numbers are more than one piece of a sum.
std::vector<at::Tensor> with_gradients(double scale, at::ScalarType type) {
  at::manual_seed(6);
  std::vector<at::Tensor> parameters;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{7, 10'003}, {3, 4, 5}, {2}}) {
    parameters.push_back(at::zeros(sizes, type).requires_grad_(true));
    parameters.back().mutable_grad() = at::randn(sizes, type) * scale;
  }
  parameters.push_back(at::zeros({3, 2}, type).requires_grad_(true));
  return parameters;
}

TEST(ClipGradientNorm, EqualsTorchOnBothEngines) {
  for (const auto engine : {nn::EngineKind::kKernels, nn::EngineKind::kAten})
    for (const auto type : {at::kFloat, at::kDouble})
      for (const double limit : {1e-3, 1.0, 200.0, 1e6}) {
        const auto ours = with_gradients(0.5, type), theirs = with_gradients(0.5, type);
        clip_gradient_norm(ours, limit, nn::engine_of(engine).step());
        torch::nn::utils::clip_grad_norm_(theirs, limit);
        for (size_t i = 0; i + 1 < ours.size(); ++i)
          EXPECT_TRUE(ours[i].grad().allclose(theirs[i].grad(), 1e-6, 0)) << limit << ' ' << i;
        EXPECT_FALSE(ours.back().grad().defined());
      }
}

TEST(ClipGradientNorm, LeavesASmallGradientUnchanged) {
  for (const auto engine : {nn::EngineKind::kKernels, nn::EngineKind::kAten}) {
    const auto clipped = with_gradients(1e-3, at::kFloat), before = with_gradients(1e-3, at::kFloat);
    clip_gradient_norm(clipped, 1.0, nn::engine_of(engine).step());
    for (size_t i = 0; i + 1 < clipped.size(); ++i) EXPECT_TRUE(clipped[i].grad().equal(before[i].grad())) << i;
  }
}

TEST(ClipGradientNorm, BitsDoNotDependOnThreads) {
  const int before = at::get_num_threads();
  std::vector<at::Tensor> clipped;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const auto parameters = with_gradients(0.5, at::kFloat);
    clip_gradient_norm(parameters, 1.0, nn::engine_of(nn::EngineKind::kKernels).step());
    clipped.push_back(parameters[0].grad());
  }
  at::set_num_threads(before);
  EXPECT_TRUE(clipped[0].equal(clipped[1]) && clipped[0].equal(clipped[2]));
}

TEST(ClipGradientNorm, ANormThatIsNotFiniteShowsInAllGradients) {
  for (const auto engine : {nn::EngineKind::kKernels, nn::EngineKind::kAten}) {
    const auto parameters = with_gradients(0.5, at::kFloat);
    parameters[1].mutable_grad()[0][0][0] = std::numeric_limits<float>::quiet_NaN();
    clip_gradient_norm(parameters, 1.0, nn::engine_of(engine).step());
    EXPECT_TRUE(parameters[2].grad().isnan().all().item<bool>());
    clip_gradient_norm({}, 1.0, nn::engine_of(engine).step());
  }
}

}  // namespace
}  // namespace evenkeel::train
