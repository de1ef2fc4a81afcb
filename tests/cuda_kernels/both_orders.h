/// \file  Runs an emulated kernel on tensors of the processor and checks that its threads may run in any order.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "emulation.h"
#include "nn/cuda_kernels/kernels.h"
#include "nn/cuda_kernels/source/arguments.h"
#include "nn/testing.h"

namespace evenkeel::nn::cuda {

constexpr unsigned kThreads = 64;

/// Runs a kernel with the threads of each block in both orders. Fails the test if a bit of `outputs` differs.
/// \param outputs  what the kernel writes, or reads and writes
template <typename Arguments>
void run_both_ways(const std::string& entry, const Arguments& arguments, int64_t blocks,
                   const std::vector<at::Tensor>& outputs, unsigned threads = kThreads) {
  const auto* kernel = emulation::find_kernel(entry);
  ASSERT_NE(kernel, nullptr) << entry;
  ASSERT_EQ(kernel->argument_bytes, sizeof arguments) << entry;
  std::vector<at::Tensor> before, backwards;
  for (const auto& output : outputs) before.push_back(output.clone());
  for (const auto order : {emulation::Order::kBackward, emulation::Order::kForward}) {
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].copy_(before[i]);
    emulation::run_kernel(*kernel, &arguments, static_cast<unsigned>(blocks), threads, order);
    if (order == emulation::Order::kBackward)
      for (const auto& output : outputs) backwards.push_back(output.clone());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto bits = [](const at::Tensor& x) { return x.contiguous().view(at::kByte); };
    EXPECT_TRUE(at::equal(bits(outputs[i]), bits(backwards[i])))
        << entry << ": output " << i << " depends on the order";
  }
}

/// A type of values, and whether the kernel reads 16 bytes at once.
struct Variant {
  at::ScalarType type;
  bool wide;

  std::string of(const std::string& kernel) const {
    return kernel + (type == at::kFloat ? "_f32" : "_bf16") + (wide ? "_wide" : "");
  }
  /// How far a result, rounded once, may be from its reference, by norm.
  double tolerance() const { return type == at::kFloat ? 3e-6 : 4e-3; }
};
inline const std::vector<Variant> kVariants{
    {at::kFloat, false}, {at::kFloat, true}, {at::kBFloat16, false}, {at::kBFloat16, true}};

inline at::Tensor random_values(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
  return testing::random_tensor(sizes, seed).to(type);
}
/// A tensor of numbers that are none, so that what a kernel leaves unwritten is seen.
inline at::Tensor unwritten(at::IntArrayRef sizes, at::ScalarType type) {
  return at::full(sizes, std::numeric_limits<double>::quiet_NaN(), type);
}

}  // namespace evenkeel::nn::cuda
