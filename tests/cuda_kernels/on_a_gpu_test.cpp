// Compares what engine aten computes with its CUDA kernels and with LibTorch's operators, on EVENKEEL_TEST_DEVICE.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <iostream>
#include <vector>

#include "nn/aten_engine/attention.h"
#include "nn/aten_engine/experts.h"
#include "nn/aten_engine/routing.h"
#include "nn/aten_engine/rows.h"
#include "nn/cuda_kernels/kernels.h"
#include "nn/cuda_kernels/norm.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::apart_by_norm;
using testing::random_tensor;
using testing::test_device;

using Outputs = std::vector<at::Tensor>;

/// Runs `f` with a kernel and with operators only. Skips a test where the kernels cannot run.
class OnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device().is_cpu()) GTEST_SKIP() << "EVENKEEL_TEST_DEVICE names no GPU";
    const auto why_not = cuda::why_no_kernels(test_device());
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
  void TearDown() override { cuda::use_kernels(test_device(), {}); }

  static Outputs with(const std::string& kernels, const std::function<Outputs()>& f) {
    cuda::use_kernels(test_device(), cuda::KernelSet::read(kernels, "kernels"));
    return f();
  }
  static void expect_alike(const std::string& kernel, const std::function<Outputs()>& f, double tolerance) {
    const auto own = with(kernel, f), operators = with("none", f);
    ASSERT_EQ(own.size(), operators.size());
    for (size_t i = 0; i < own.size(); ++i) {
      ASSERT_EQ(own[i].defined(), operators[i].defined()) << kernel << ", output " << i;
      if (!own[i].defined()) continue;
      EXPECT_EQ(own[i].sizes(), operators[i].sizes());
      EXPECT_EQ(own[i].scalar_type(), operators[i].scalar_type()) << kernel << ", output " << i;
      EXPECT_LT(apart_by_norm(own[i], operators[i]), tolerance) << kernel << ", output " << i;
    }
  }
};

at::Tensor leaf(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
  return random_tensor(sizes, seed).to(at::kBFloat16).to(test_device(), type).requires_grad_(true);
}

/// Returns `y` and the gradients of `leaves` for fixed directions.
Outputs with_gradients(Outputs y, const std::vector<at::Tensor>& leaves) {
  Outputs directions;
  for (const auto& each : y) directions.push_back(random_tensor(each.sizes(), 91).to(each.options()));
  auto gradients = torch::autograd::grad(y, leaves, directions, {}, false, /*allow_unused=*/true);
  for (auto& each : y) each = each.detach();
  y.insert(y.end(), gradients.begin(), gradients.end());
  return y;
}

double tolerance_of(at::ScalarType type) { return type == at::kFloat ? 1e-5 : 2e-2; }

struct ExpertSizes {
  int64_t tokens, hidden, width, experts, top_k, rank;
};

Outputs experts(const ExpertSizes& s, at::ScalarType type, bool adapted) {
  ExpertWeights weights;
  weights.gate_up_stack = random_tensor({s.experts, 2 * s.width, s.hidden}, 4).mul(0.3).to(test_device(), type);
  weights.down_stack = random_tensor({s.experts, s.hidden, s.width}, 5).mul(0.3).to(test_device(), type);
  for (int64_t e = 0; e < s.experts; ++e) {
    weights.gate.emplace_back(weights.gate_up_stack[e].narrow(0, 0, s.width));
    weights.up.emplace_back(weights.gate_up_stack[e].narrow(0, s.width, s.width));
    weights.down.emplace_back(weights.down_stack[e]);
  }
  std::vector<at::Tensor> leaves{leaf({s.tokens, s.hidden}, 1, at::kFloat), leaf({s.tokens, s.top_k}, 2, at::kFloat)};
  std::vector<lora::LoraFactors> lora;
  for (int64_t p = 0; p < 3; ++p) {
    const int64_t in = p == 2 ? s.width : s.hidden, out = p == 2 ? s.hidden : s.width;
    leaves.push_back(leaf({s.experts, s.rank, in}, 20 + static_cast<uint64_t>(p), at::kFloat));
    leaves.push_back(leaf({s.experts, out, s.rank}, 30 + static_cast<uint64_t>(p), at::kFloat));
    lora.push_back({leaves[leaves.size() - 2], leaves.back(), {}, 0.3});
  }
  ExpertFactors factors;
  if (adapted)
    factors = {{&lora[0], nullptr}, {&lora[1], nullptr}, {&lora[2], nullptr}};
  else
    leaves.resize(2);
  auto layer = aten::layer_factors(weights, factors);
  aten::pack_layers({&layer, 1}, type);
  const auto chosen = std::get<1>(random_tensor({s.tokens, s.experts}, 3).topk(s.top_k)).to(test_device());
  return with_gradients({aten::experts(leaves[0], {chosen, leaves[1]}, weights, layer, {}, type)}, leaves);
}

TEST_F(OnAGpu, ExpertsAreThoseOfOperators) {
  for (const auto* kernels : {"swiglu", "rows", "routing", "all"})
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const bool adapted : {false, true}) {
        expect_alike(
            kernels,
            [&] {
              return experts({13, 16, 8, 5, 2, 3}, type, adapted);
            },
            tolerance_of(type));
        expect_alike(
            kernels,
            [&] {
              return experts({1, 12, 7, 3, 1, 3}, type, adapted);
            },
            tolerance_of(type));
      }
}

TEST_F(OnAGpu, RoutingIsThatOfOperators) {
  for (const bool norm_topk : {false, true})
    for (const int64_t tokens : {1, 7})
      expect_alike(
          "routing",
          [&] {
            const auto logits = leaf({tokens, 6}, 1, at::kFloat);
            const auto routing = aten::route(logits, RouterOptions{.top_k = 3}, at::Tensor(), norm_topk);
            auto out = with_gradients({routing.weights}, {logits});
            out.push_back(routing.experts);
            return out;
          },
          1e-6);
}

TEST_F(OnAGpu, HeadsAreNormalisedAndRotatedAsByOperators) {
  const auto angle = at::cat({random_tensor({5, 8}, 7), random_tensor({5, 8}, 7)}, 1) * 3;
  const RotaryTable table{angle.cos().to(test_device(), at::kFloat), angle.sin().to(test_device(), at::kFloat)};
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t width : {0, 16, 48})
      for (const bool rotates : {false, true}) {
        HeadSteps steps{.norm = width > 0 ? random_tensor({width}, 3).to(at::kBFloat16).to(test_device(), at::kFloat)
                                          : at::Tensor(),
                        .norm_eps = 1e-5,
                        .rotary = rotates ? table : RotaryTable{}};
        for (const auto& clip : {std::optional<double>(), std::optional(0.5)}) {
          steps.clip = clip;
          expect_alike(
              "norm",
              [&] {
                const auto x = leaf({5, 3, 16}, 1, type);
                return with_gradients({aten::apply_steps(x, steps) * 1}, {x});
              },
              tolerance_of(type));
        }
      }
}

TEST_F(OnAGpu, RowsAreThoseOfOperators) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t width : {7, 16})
      expect_alike(
          "rows",
          [&] {
            aten::IndexUpload upload;
            const std::vector<int64_t> from{4, 1, 4, 0, 3, 4};
            const aten::RowIndexUpload index(from, 5, upload);
            upload.send(test_device());
            const auto x = leaf({5, 3, width}, 1, type);
            return with_gradients({aten::gather_rows(x, index.sent(upload))}, {x});
          },
          type == at::kFloat ? 1e-6 : 4e-3);
}

/// There is no node of operators for this: the sum and the norm are two.
TEST_F(OnAGpu, TheResidualStreamIsAddedToAndNormalised) {
  const auto weight = random_tensor({16}, 3).to(test_device(), at::kFloat);
  cuda::use_kernels(test_device(), cuda::KernelSet::all());
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto norm_type : {at::kFloat, type}) {
      const auto x = leaf({5, 16}, 1, at::kFloat), added = leaf({5, 16}, 2, type);
      const auto own = cuda::residual_norm(x, added, weight, 1e-5, norm_type);
      ASSERT_TRUE(own);
      EXPECT_EQ(own->norm_RD.scalar_type(), norm_type);
      const auto ours = with_gradients({own->sum_RD, own->norm_RD}, {x, added});
      const auto sum = x + added;
      const auto norm = (sum * at::rsqrt(sum.square().mean(1, true) + 1e-5) * weight).to(norm_type);
      const auto theirs = with_gradients({sum, norm}, {x, added});
      for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(apart_by_norm(ours[i], theirs[i]), tolerance_of(type)) << i;
    }
  const auto x = leaf({5, 16}, 1, at::kFloat);
  EXPECT_FALSE(cuda::residual_norm(x, x, weight, 1e-5, at::kBFloat16)) << "a norm that is narrower than what is added";
}

TEST_F(OnAGpu, KernelsLeaveFloat64ToOperators) {
  cuda::use_kernels(test_device(), cuda::KernelSet::all());
  EXPECT_EQ(cuda::device_for(cuda::Kernel::kRows, at::zeros({2, 3}, at::device(test_device()).dtype(at::kDouble))),
            nullptr);
  EXPECT_NE(cuda::device_for(cuda::Kernel::kRows, at::zeros({2, 3}, at::device(test_device()))), nullptr);
}

}  // namespace
}  // namespace evenkeel::nn
