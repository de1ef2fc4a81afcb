/// \file  Compares gradients with central differences in float64, for the tests of this room and of rooms above it.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/system/device.h"

namespace evenkeel::testing {

/// Returns normal random numbers that depend only on the seed.
inline at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed, at::ScalarType dtype = at::kDouble) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kDouble).to(dtype);
}

/// Returns the device for tests of engine aten: EVENKEEL_TEST_DEVICE, or the CPU. Expected values are always computed
/// on the CPU.
inline c10::Device test_device() {
  const char* name = std::getenv("EVENKEEL_TEST_DEVICE");
  return find_device(name ? name : "cpu", "EVENKEEL_TEST_DEVICE");
}

/// Returns |x - y| / |y| with Euclidean norms, in float64 on the CPU.
inline double apart_by_norm(const at::Tensor& x, const at::Tensor& y) {
  const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kCPU, at::kDouble); };
  const double size = wide(y).norm().item<double>();
  return (wide(x) - wide(y)).norm().item<double>() / (size > 0 ? size : 1);
}

inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0.0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

/// Limits LibTorch to one thread for its lifetime. Thousands of tiny products gain nothing from more threads, and
/// waiting for them is slow on a busy machine.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

using TensorFunction = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// Compares the gradients of sum(f * fixed random numbers) with central differences, for every element of every input.
inline void expect_gradients_match(const TensorFunction& f, std::vector<at::Tensor> inputs, double tolerance = 1e-6) {
  const OneThread one_thread;
  for (auto& input : inputs) input = input.detach().clone().contiguous().requires_grad_(true);
  const auto out = f(inputs);
  const auto direction = random_tensor(out.sizes(), 991);
  const auto value = [&] { return (f(inputs).detach() * direction).sum().item<double>(); };
  (out * direction).sum().backward();
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(inputs[i].grad().defined()) << "input " << i << " has no gradient";
    const auto grad = inputs[i].grad().contiguous();
    double* x = inputs[i].mutable_data_ptr<double>();
    for (int64_t j = 0; j < inputs[i].numel(); ++j) {
      const double original = x[j];
      x[j] = original + kStep;
      const double above = value();
      x[j] = original - kStep;
      const double below = value();
      x[j] = original;
      const double numeric = (above - below) / (2 * kStep);
      ASSERT_NEAR(grad.const_data_ptr<double>()[j], numeric, tolerance * (1 + std::abs(numeric)))
          << "input " << i << ", element " << j;
    }
  }
}

}  // namespace evenkeel::testing
