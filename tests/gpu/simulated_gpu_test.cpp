// Tests that a simulated GPU computes, and that it refuses what a GPU refuses.

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <string>

namespace evenkeel::simulated_gpu {
namespace {

const auto kOnGpu = at::device(at::kCUDA).dtype(at::kFloat);

/// Returns the message of the error that `f` throws.
template <typename F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(SimulatedGpu, IsTheAccelerator) {
  EXPECT_EQ(at::accelerator::getAccelerator(false), c10::DeviceType::CUDA);
  EXPECT_EQ(at::accelerator::deviceCount(), 1);
}

TEST(SimulatedGpu, ComputesWhatTheProcessorComputes) {
  const auto x = at::randn({3, 5}), y = at::randn({5, 4});
  auto x_gpu = x.to(at::kCUDA).requires_grad_(true);
  const auto z_gpu = at::mm(x_gpu, y.to(at::kCUDA)).t().narrow(0, 1, 2).exp();
  EXPECT_TRUE(z_gpu.is_cuda());
  EXPECT_TRUE(at::allclose(z_gpu.cpu(), at::mm(x, y).t().narrow(0, 1, 2).exp()));
  z_gpu.sum().backward();
  EXPECT_TRUE(x_gpu.grad().is_cuda() && x_gpu.grad().isfinite().all().item<bool>());
}

TEST(SimulatedGpu, WritesIntoViewsAndAccumulates) {
  auto sums = at::zeros({2, 6}, kOnGpu);
  sums.narrow(1, 2, 3).add_(at::ones({3}, kOnGpu), 2.5);
  EXPECT_EQ(sums.sum().item<float>(), 15);
  at::mul_out(sums, sums, sums);
  EXPECT_EQ(sums[1][2].item<float>(), 6.25);
}

TEST(SimulatedGpu, ComputesOperatorsOnLists) {
  const std::vector<at::Tensor> alike{at::ones({3, 4}, kOnGpu), at::ones({5}, kOnGpu)};
  at::_foreach_mul_(alike, 3);
  at::_foreach_add_(alike, at::_foreach_mul(alike, 2));
  EXPECT_EQ(alike[0].sum().item<float>() + alike[1].sum().item<float>(), (12 + 5) * 9);
  const auto columns = at::zeros({3, 4}, kOnGpu);
  const std::vector<at::Tensor> inner{columns.narrow(1, 1, 2)}, ones{at::ones({3, 2}, kOnGpu)};
  at::_foreach_add_(inner, ones);
  EXPECT_EQ(columns.sum().item<float>(), 6) << "not dense, so each is an operator of its own";
}

TEST(SimulatedGpu, HasNoNumbersInNewMemory) { EXPECT_TRUE(at::empty({7}, kOnGpu).isnan().all().item<bool>()); }

TEST(SimulatedGpu, RejectsTensorsOfTheProcessor) {
  const auto mixed = [] { return at::ones({3}, kOnGpu) + at::ones({3}); };
  EXPECT_NE(error_of(mixed).find("cuda:0 and cpu"), std::string::npos) << error_of(mixed);
  const auto mixed_product = [] { return at::mm(at::ones({3, 2}, kOnGpu), at::ones({2, 4})); };
  EXPECT_NE(error_of(mixed_product), "no error");
  EXPECT_EQ((at::ones({3}, kOnGpu) + at::scalar_tensor(2)).sum().item<float>(), 9) << "but takes a number";
}

TEST(SimulatedGpu, RejectsOperatorsWithoutADeterministicAlgorithm) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  const auto sum = [] { return at::ones({3}, kOnGpu).cumsum(0); };
  EXPECT_NE(error_of(sum).find("deterministic"), std::string::npos);
  at::globalContext().setDeterministicAlgorithms(false, false);
  EXPECT_EQ(error_of(sum), "no error");
}

TEST(SimulatedGpu, RejectsOperandsThatAGroupedProductCannotRead) {
  const auto half = kOnGpu.dtype(at::kBFloat16);
  const auto ends = at::tensor({2, 2, 5}, at::kInt).to(at::kCUDA);
  const auto product = [&](int64_t in) {
    return at::_grouped_mm(at::ones({5, in}, half), at::ones({3, in, 16}, half), ends);
  };
  EXPECT_NE(error_of([&] { product(12); }).find("16 bytes"), std::string::npos);
  EXPECT_EQ(product(8).sum().item<float>(), 5 * 8 * 16);
  const auto outer = at::_grouped_mm(at::ones({5, 8}, half).t(), at::ones({5, 16}, half), ends);
  EXPECT_TRUE(outer[1].isnan().all().item<bool>()) << "an empty group has no sum";
  EXPECT_EQ(outer[2][0][0].item<float>(), 3);
}

TEST(SimulatedGpu, SeesAPinnedTensorThatChangesDuringItsCopy) {
  const auto pinned = at::ones({4}, at::TensorOptions().pinned_memory(true));
  EXPECT_TRUE(pinned.is_pinned());
  auto on_gpu = at::empty({4}, kOnGpu);
  on_gpu.copy_(pinned, /*non_blocking=*/true);
  at::accelerator::synchronizeDevice(0);
  on_gpu.copy_(pinned, /*non_blocking=*/true);
  pinned.fill_(2);
  const auto waited = [] { at::accelerator::synchronizeDevice(0); };
  EXPECT_NE(error_of(waited).find("changed"), std::string::npos);
}

TEST(SimulatedGpu, CopiesBackWhenTheHostWaits) {
  const auto host = at::zeros({4}), device = at::ones({4}, kOnGpu);
  host.copy_(device, /*non_blocking=*/true);
  EXPECT_EQ(host.sum().item<float>(), 0);
  at::accelerator::synchronizeDevice(0);
  EXPECT_EQ(host.sum().item<float>(), 4);
}

TEST(SimulatedGpu, WaitsForAnEventAfterACopy) {
  const auto host = at::zeros({4}, at::TensorOptions().pinned_memory(true)), device = at::ones({4}, kOnGpu);
  host.copy_(device, /*non_blocking=*/true);
  c10::Event copied(c10::DeviceType::CUDA);
  copied.record(c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(device.device()));
  EXPECT_EQ(host.sum().item<float>(), 0);
  copied.synchronize();
  EXPECT_EQ(host.sum().item<float>(), 4);
}

TEST(SimulatedGpu, ReportsMemoryAndRunsOut) {
  at::accelerator::resetPeakStats(0);
  const auto before = at::accelerator::getMemoryInfo(0).first;
  const auto held = at::empty({1 << 20}, kOnGpu);
  EXPECT_EQ(before - at::accelerator::getMemoryInfo(0).first, size_t{4} << 20);
  const auto too_much = [] { return at::empty({int64_t{1} << 40}, kOnGpu); };
  EXPECT_NE(error_of(too_much).find("CUDA out of memory"), std::string::npos);
}

TEST(SimulatedGpuDeathTest, EndsAProcessThatReadsItsMemory) {
  const auto x = at::ones({4}, kOnGpu);
  EXPECT_DEATH((void)*static_cast<const volatile float*>(x.const_data_ptr()), "accessed memory of a GPU");
}

}  // namespace
}  // namespace evenkeel::simulated_gpu
