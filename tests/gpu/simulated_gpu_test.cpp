// Tests that a simulated GPU computes, and that it refuses what a GPU refuses.

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <memory>
#include <string>

#include "base/system/graph_plugin.h"

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

/// Records what `work` starts, on a stream of its own.
std::unique_ptr<RecordedGraph> recorded(const std::function<void()>& work) {
  const auto function = reinterpret_cast<const GraphPlugin* (*)()>(::dlsym(RTLD_DEFAULT, "evenkeel_graph_plugin"));
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  const auto before = guard.exchangeStream(guard.getStreamFromGlobalPool(c10::Device(at::kCUDA, 0)));
  auto graph = function()->make();
  graph->begin(function()->make_pool());
  try {
    work();
  } catch (...) {
    graph->end();
    guard.exchangeStream(before);
    throw;
  }
  graph->end();
  guard.exchangeStream(before);
  return graph;
}

TEST(SimulatedGpu, ReplaysARecordingOnOtherValues) {
  const auto half = kOnGpu.dtype(at::kBFloat16);
  const auto x = at::ones({5, 8}, half), w = at::ones({3, 8, 16}, half),
             ends = at::tensor({2, 2, 5}, at::kInt).to(at::kCUDA);
  auto total = at::zeros({}, kOnGpu);
  at::Tensor y;
  const auto graph = recorded([&] {
    y = at::_grouped_mm(x, w, ends).to(at::kFloat);
    total.add_(y.sum());
  });
  EXPECT_EQ(total.item<float>(), 0) << "nothing is computed while a graph is recorded";
  graph->replay();
  EXPECT_EQ(total.item<float>(), 5 * 8 * 16);
  x.fill_(2), ends.copy_(at::tensor({0, 4, 5}, at::kInt).to(at::kCUDA)), w.select(0, 0).fill_(7);
  graph->replay();
  EXPECT_EQ(total.item<float>(), 3 * 5 * 8 * 16);
  EXPECT_EQ(y.sum().item<float>(), 2 * 5 * 8 * 16);
}

TEST(SimulatedGpu, RecordsABackwardPassThatAddsInPlace) {
  auto w = at::ones({4, 3}, kOnGpu).requires_grad_(true);
  w.mutable_grad() = at::zeros_like(w);
  const auto x = at::ones({2, 4}, kOnGpu), dy = at::ones({2, 3}, kOnGpu);
  at::Tensor y;
  const auto forward = recorded([&] { y = at::mm(x, w).relu(); });
  const auto backward = recorded([&] { torch::autograd::backward({y}, {dy}); });
  EXPECT_EQ(w.grad().sum().item<float>(), 0);
  x.fill_(3);
  forward->replay(), backward->replay(), backward->replay();
  EXPECT_EQ(w.grad().sum().item<float>(), 2 * 2 * 3 * 4 * 3);
}

TEST(SimulatedGpu, RefusesWaitsAndCopiesWhileItRecords) {
  const auto x = at::ones({3}, kOnGpu);
  const auto host = at::ones({3}), pinned = at::ones({3}, at::TensorOptions().pinned_memory(true));
  const auto refused = [&](const std::function<void()>& work) { return error_of([&] { recorded(work); }); };
  EXPECT_NE(refused([&] { (void)x.sum().item<float>(); }).find("a wait while a graph is recorded"), std::string::npos);
  EXPECT_NE(refused([&] { (void)x.nonzero(); }).find("a wait"), std::string::npos);
  EXPECT_NE(refused([&] { at::accelerator::synchronizeDevice(0); }).find("a wait"), std::string::npos);
  EXPECT_NE(refused([&] { (void)x.cpu(); }).find("a copy to the processor"), std::string::npos);
  EXPECT_NE(refused([&] { x.copy_(host); }).find("a copy to the GPU"), std::string::npos);
  EXPECT_NE(refused([&] { x.copy_(pinned, true); }).find("a copy to the GPU"), std::string::npos);
  EXPECT_EQ(refused([&] { x.add_(1); }), "no error");
}

TEST(SimulatedGpu, RecordsNoDefaultStream) {
  const auto function = reinterpret_cast<const GraphPlugin* (*)()>(::dlsym(RTLD_DEFAULT, "evenkeel_graph_plugin"));
  const auto graph = function()->make();
  EXPECT_NE(error_of([&] { graph->begin(function()->make_pool()); }).find("default stream"), std::string::npos);
}

TEST(SimulatedGpuDeathTest, EndsAProcessThatReadsItsMemory) {
  const auto x = at::ones({4}, kOnGpu);
  EXPECT_DEATH((void)*static_cast<const volatile float*>(x.const_data_ptr()), "accessed memory of a GPU");
}

}  // namespace
}  // namespace evenkeel::simulated_gpu
