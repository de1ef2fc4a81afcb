// Compares the experts of engine aten, on EVENKEEL_TEST_DEVICE, with those of the CPU kernels in float64.
#include "nn/moe/experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/plain/error.h"
#include "nn/aten_engine/experts.h"
#include "nn/aten_engine/grouped.h"
#include "nn/aten_engine/linear.h"
#include "nn/compute/compute.h"
#include "nn/moe/experts.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::apart_by_norm;
using testing::random_tensor;
using testing::test_device;

struct Sizes {
  int64_t tokens, hidden, width, experts, top_k, rank;
};

/// Sizes of a call, the projections that have an adapter, and whether the base has a change.
struct Shape {
  Sizes sizes;
  bool gate = true, up = true, down = true, change = false;
};

/// All tensors of one call, in float64 on the CPU. The last expert gets no token.
struct Call {
  explicit Call(const Shape& s) : shape(s) {
    const auto& [tokens, hidden, width, experts, top_k, rank] = s.sizes;
    x = testing::random_tensor({tokens, hidden}, 1);
    weights = testing::random_tensor({tokens, top_k}, 2).abs();
    chosen = std::get<1>(testing::random_tensor({tokens, experts - 1}, 3).topk(top_k));
    gate_up = testing::random_tensor({experts, 2 * width, hidden}, 4) * 0.3;
    down = testing::random_tensor({experts, hidden, width}, 5) * 0.3;
    for (int64_t p = 0; p < 3; ++p) {
      const int64_t in = p == 2 ? width : hidden, out = p == 2 ? hidden : width;
      const auto seed = static_cast<uint64_t>(10 + 4 * p);
      factors.push_back(testing::random_tensor({experts, rank, in}, seed) * 0.3);
      factors.push_back(testing::random_tensor({experts, out, rank}, seed + 1) * 0.3);
      changes.push_back(testing::random_tensor({1, 3, in}, seed + 2).expand({experts, 3, in}) * 0.2);
      changes.push_back(testing::random_tensor({experts, out, 3}, seed + 3) * 0.2);
    }
  }

  Shape shape;
  at::Tensor x, weights, chosen, gate_up, down;
  std::vector<at::Tensor> factors, changes;
};

struct Result {
  at::Tensor y;
  std::vector<at::Tensor> gradients;
};

/// Computes the experts with the engine that `compute` selects.
at::Tensor experts_of(const at::Tensor& x, const Routing& routing, const ExpertWeights& weights,
                      const ExpertFactors& factors, const Compute& compute) {
  if (compute.engine == EngineKind::kKernels) return nn::experts(x, routing, weights, factors);
  auto layer = aten::layer_factors(weights, factors);
  const auto type = aten::inner_type(x, compute);
  aten::pack_layers({&layer, 1}, type);
  return aten::experts(x, routing, weights, layer, {}, type);
}

/// Returns y and the gradients of x, weights and factors for a fixed direction.
Result result_of(const Call& call, at::ScalarType type, at::ScalarType stored, c10::Device device,
                 const Compute& compute) {
  const auto leaf = [&](const at::Tensor& t) { return t.to(stored).to(device, type).clone().requires_grad_(true); };
  std::vector<at::Tensor> leaves{leaf(call.x), leaf(call.weights)};
  for (const auto& factor : call.factors) leaves.push_back(leaf(factor));
  ExpertWeights weights;
  weights.gate_up_stack = call.gate_up.to(stored).to(device);
  weights.down_stack = call.down.to(stored).to(device);
  const int64_t width = call.shape.sizes.width;
  for (int64_t e = 0; e < call.shape.sizes.experts; ++e) {
    weights.gate.emplace_back(weights.gate_up_stack[e].narrow(0, 0, width));
    weights.up.emplace_back(weights.gate_up_stack[e].narrow(0, width, width));
    weights.down.emplace_back(weights.down_stack[e]);
  }
  std::vector<lora::LoraFactors> lora, change;
  for (size_t p = 0; p < 3; ++p) {
    lora.push_back({leaves[2 + 2 * p], leaves[3 + 2 * p], {}, 0.5 + 0.1 * static_cast<double>(p)});
    const auto part = [&](size_t i) { return call.changes[i].to(stored).to(device, type); };
    change.push_back({part(2 * p), part(2 * p + 1)});
  }
  const auto factors_of = [&](size_t p, bool adapted) {
    return lora::SiteFactors{adapted ? &lora[p] : nullptr, call.shape.change ? &change[p] : nullptr};
  };
  const auto& s = call.shape;
  const auto y = experts_of(leaves[0], {call.chosen.to(device), leaves[1]}, weights,
                            {factors_of(0, s.gate), factors_of(1, s.up), factors_of(2, s.down)}, compute);
  const auto direction = testing::random_tensor(y.sizes(), 99).to(stored).to(y.options());
  auto gradients = torch::autograd::grad({y}, leaves, {direction}, {}, false, /*allow_unused=*/true);
  for (auto& gradient : gradients)
    if (!gradient.defined()) gradient = at::zeros({1}, at::kDouble);
  return {y.detach(), gradients};
}

void expect_alike(const Shape& shape, at::ScalarType type, const Compute& compute, double tolerance) {
  const Call call(shape);
  const auto stored = compute.inner == at::kBFloat16 ? at::kBFloat16 : type;
  const auto ours = result_of(call, type, stored, testing::test_device(), compute),
             theirs = result_of(call, at::kDouble, stored == at::kBFloat16 ? stored : at::kDouble, at::kCPU, {});
  EXPECT_LT(testing::apart_by_norm(ours.y, theirs.y), tolerance);
  for (size_t i = 0; i < ours.gradients.size(); ++i)
    EXPECT_LT(testing::apart_by_norm(ours.gradients[i], theirs.gradients[i]), tolerance) << "gradient " << i;
}

const Compute kAtenWide{.engine = EngineKind::kAten, .products = {}, .inner = at::kFloat};
const Compute kAtenNarrow{.engine = EngineKind::kAten, .products = {}, .inner = at::kBFloat16};

TEST(AtenExperts, EqualTheKernelsAtEveryRankInFloat64) {
  for (const int64_t rank : {1, 5, 20, 32}) expect_alike({{11, 12, 7, 5, 2, rank}}, at::kDouble, kAtenWide, 1e-11);
}

TEST(AtenExperts, EqualTheKernelsAtEveryRankInFloat32) {
  for (const int64_t rank : {1, 5, 20, 32}) expect_alike({{37, 64, 32, 6, 3, rank}}, at::kFloat, kAtenWide, 1e-5);
  expect_alike({{11, 12, 7, 5, 2, 3}}, at::kFloat, kAtenWide, 1e-5);  // strides that at::_grouped_mm does not support
}

TEST(AtenExperts, AreCloseToTheKernelsInBFloat16) {
  for (const int64_t rank : {1, 5, 20, 32}) expect_alike({{37, 64, 32, 6, 3, rank}}, at::kFloat, kAtenNarrow, 2e-2);
}

TEST(AtenExperts, EqualTheKernelsForAnyCombinationOfAdapters) {
  for (const bool change : {false, true})
    for (int64_t mask = 0; mask < 8; ++mask) {
      const Shape shape{{9, 16, 8, 4, 2, 5}, (mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0, change};
      expect_alike(shape, at::kDouble, kAtenWide, 1e-11);
      expect_alike(shape, at::kFloat, kAtenNarrow, 2e-2);
    }
}

TEST(AtenExperts, EqualTheKernelsForOneTokenAndForNearlyAllExperts) {
  expect_alike({{1, 16, 8, 3, 1, 4}}, at::kFloat, kAtenWide, 1e-5);
  expect_alike({{23, 16, 8, 9, 8, 4}}, at::kFloat, kAtenWide, 1e-5);
}

TEST(AtenExperts, AccumulateIntoExistingGradients) {
  const Call call(Shape{{9, 16, 8, 4, 2, 5}});
  const auto once = result_of(call, at::kDouble, at::kDouble, at::kCPU, kAtenWide);
  auto a = call.factors[0].clone().requires_grad_(true), b = call.factors[1].clone().requires_grad_(true);
  a.mutable_grad() = at::ones_like(a);
  b.mutable_grad() = at::ones_like(b);
  ExpertWeights weights;
  weights.gate_up_stack = call.gate_up;
  weights.down_stack = call.down;
  for (int64_t e = 0; e < 4; ++e) {
    weights.gate.emplace_back(call.gate_up[e].narrow(0, 0, 8));
    weights.up.emplace_back(call.gate_up[e].narrow(0, 8, 8));
    weights.down.emplace_back(call.down[e]);
  }
  lora::LoraFactors gate{a, b, {}, 0.5}, up{call.factors[2], call.factors[3], {}, 0.6},
      down{call.factors[4], call.factors[5], {}, 0.7};
  const auto y = experts_of(call.x, {call.chosen, call.weights}, weights, {{&gate}, {&up}, {&down}}, kAtenWide);
  const auto* address = a.grad().const_data_ptr();
  (y * testing::random_tensor(y.sizes(), 99)).sum().backward();
  EXPECT_EQ(a.grad().const_data_ptr(), address);
  EXPECT_LT(testing::apart_by_norm(a.grad() - 1, once.gradients[2]), 1e-11);
  EXPECT_LT(testing::apart_by_norm(b.grad() - 1, once.gradients[3]), 1e-11);
  EXPECT_EQ(b.grad()[3].min().item<double>(), 1) << "an idle expert has a gradient of zero";
}

/// Layers of other ranks, sizes and projections, one of them without factors: each pair is the same packed alone.
TEST(AtenExperts, PackTheFactorsOfSeveralLayersAsEachAlone) {
  const auto pair = [](int64_t rank, int64_t in, int64_t out, uint64_t seed, double scaling) {
    return aten::LoraPair{testing::random_tensor({4, rank, in}, seed, at::kFloat),
                          testing::random_tensor({4, out, rank}, seed + 1, at::kFloat), scaling};
  };
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    std::vector<aten::LayerFactors> layers(6);
    layers[0].projections = {{{pair(5, 16, 8, 1, 0.3), {}}, {pair(5, 16, 8, 3, 1), pair(2, 16, 8, 5, 1)}, {}}};
    layers[2].projections = {{{pair(3, 16, 8, 7, 0.3), {}}, {pair(3, 16, 8, 9, 2), pair(8, 16, 8, 11, 1)}, {}}};
    layers[3].projections = {{{pair(3, 24, 8, 13, 0.3), {}}, {}, {pair(8, 8, 16, 15, 0.7), {}}}};
    layers[4].projections = {{{pair(8, 24, 8, 17, 1), {}}, {}, {pair(3, 8, 16, 19, 0.7), {}}}};
    layers[5].projections = {{{}, {{}, pair(4, 16, 8, 21, 1)}, {}}};
    auto alone = layers;
    aten::pack_layers(layers, type);
    for (size_t i = 0; i < layers.size(); ++i) {
      aten::pack_layers({&alone[i], 1}, type);
      const auto &ours = layers[i].gate_up, &theirs = alone[i].gate_up;
      ASSERT_EQ(ours.a_ERI.defined(), i != 1) << i;
      EXPECT_EQ(layers[i].down.a_ERI.defined(), i == 3 || i == 4);
      if (i == 1) continue;
      EXPECT_TRUE(at::equal(ours.a_ERI, theirs.a_ERI)) << i;
      EXPECT_TRUE(at::equal(ours.b_EOR, theirs.b_EOR)) << i;
      EXPECT_EQ(ours.b_EOR.size(1), 16);
    }
    // The products of the packed pairs are the sum of the pairs' products.
    const auto& up = layers[0].projections[1];
    const auto product = at::matmul(layers[0].gate_up.b_EOR.to(at::kDouble), layers[0].gate_up.a_ERI.to(at::kDouble));
    const auto of = [](const aten::LoraPair& p) { return p.scaling * at::matmul(p.b, p.a).to(at::kDouble); };
    const double near = type == at::kFloat ? 1e-6 : 1e-2;
    EXPECT_LT(testing::apart_by_norm(product.narrow(1, 0, 8), of(layers[0].projections[0].adapter)), near);
    EXPECT_LT(testing::apart_by_norm(product.narrow(1, 8, 8), of(up.adapter) + of(up.change)), near);
  }
}

TEST(AtenSlots, AreStableAndInverse) {
  const auto experts_TK = at::tensor({3, 1, 0, 3, 1, 3, 3, 0}, at::kLong).view({4, 2}).to(testing::test_device());
  for (const int64_t groups : {5, 300}) {
    const auto slots = aten::slots_of(experts_TK, groups);
    const auto host = [](const at::Tensor& t) {
      const auto wide = t.to(at::kCPU, at::kLong).contiguous();
      return std::vector<int64_t>(wide.const_data_ptr<int64_t>(), wide.const_data_ptr<int64_t>() + wide.numel());
    };
    EXPECT_EQ(host(slots.order_S), std::vector<int64_t>({2, 7, 1, 4, 0, 3, 5, 6}));
    EXPECT_EQ(host(slots.token_S), std::vector<int64_t>({1, 3, 0, 2, 0, 1, 2, 3}));
    EXPECT_EQ(host(slots.place_S), std::vector<int64_t>({4, 2, 0, 5, 3, 6, 7, 1}));
    auto ends = host(slots.ends_E);
    ends.resize(5);
    EXPECT_EQ(ends, std::vector<int64_t>({2, 4, 4, 8, 8}));
  }
}

TEST(AtenSlots, HaveTheSameInputsWithoutWhatOnlyGradientsNeed) {
  const auto device = testing::test_device();
  const auto experts_TK = at::tensor({3, 1, 0, 3, 1, 3, 3, 0}, at::kLong).view({4, 2}).to(device);
  const auto x_TD = testing::random_tensor({4, 5}, 3, at::kFloat).to(device);
  const auto whole = aten::slots_of(experts_TK, 5), bare = aten::slots_of(experts_TK, 5, {}, /*gradients=*/false);
  EXPECT_FALSE(bare.token_S.defined() || bare.idle_E11.defined());
  EXPECT_TRUE(at::equal(bare.order_S, whole.order_S) && at::equal(bare.place_S, whole.place_S));
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const auto expected = x_TD.to(type).index_select(0, whole.token_S);
    EXPECT_TRUE(at::equal(aten::slot_inputs(x_TD, whole, type), expected));
    EXPECT_TRUE(at::equal(aten::slot_inputs(x_TD, bare, type), expected));
  }
  const auto many_TK = at::arange(2 * 900).remainder(5).view({900, 2}).to(device);  // too many to repeat
  EXPECT_TRUE(aten::slots_of(many_TK, 5, {}, false).token_S.defined());
}

TEST(AtenExperts, RejectWeightsThatAreNotStacked) {
  const Call call(Shape{{9, 16, 8, 4, 2, 5}});
  ExpertWeights weights;
  for (int64_t e = 0; e < 4; ++e) {
    weights.gate.emplace_back(call.gate_up[e].narrow(0, 0, 8));
    weights.up.emplace_back(call.gate_up[e].narrow(0, 8, 8));
    weights.down.emplace_back(call.down[e]);
  }
  EXPECT_THROW(experts_of(call.x, {call.chosen, call.weights}, weights, {}, kAtenWide), Error);
}

}  // namespace
}  // namespace evenkeel::nn
