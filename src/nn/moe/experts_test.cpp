#include "nn/moe/experts.h"

#include <ATen/Parallel.h>

#include "base/plain/error.h"
#include "nn/kernels/layers/expert_slots.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

constexpr int64_t kTokens = 11, kHidden = 6, kWidth = 4, kExperts = 5, kTopK = 2, kRank = 3;

ExpertWeights make_weights(int64_t experts, int64_t width, int64_t hidden, at::ScalarType dtype = at::kDouble) {
  ExpertWeights weights;
  for (int64_t e = 0; e < experts; ++e) {
    const auto seed = static_cast<uint64_t>(100 + 3 * e);
    weights.gate.push_back(testing::random_tensor({width, hidden}, seed, dtype));
    weights.up.push_back(testing::random_tensor({width, hidden}, seed + 1, dtype));
    weights.down.push_back(testing::random_tensor({hidden, width}, seed + 2, dtype));
  }
  return weights;
}

struct StackedFactors {
  lora::LoraFactors gate, up, down;
  ExpertFactors view() const { return {{&gate}, {&up}, {&down}}; }
};

StackedFactors make_factors(int64_t experts, int64_t width, int64_t hidden, int64_t rank,
                            at::ScalarType dtype = at::kDouble) {
  return {{testing::random_tensor({experts, rank, hidden}, 31, dtype),
           testing::random_tensor({experts, width, rank}, 32, dtype),
           {},
           0.5},
          {testing::random_tensor({experts, rank, hidden}, 33, dtype),
           testing::random_tensor({experts, width, rank}, 34, dtype),
           {},
           0.6},
          {testing::random_tensor({experts, rank, width}, 35, dtype),
           testing::random_tensor({experts, hidden, rank}, 36, dtype),
           {},
           0.7}};
}

// Routes token t to experts t and t + 1 modulo E - 1, so the last expert is idle.
Routing cyclic_routing(int64_t tokens, int64_t experts, int64_t top_k, at::ScalarType dtype = at::kDouble) {
  Routing routing{at::empty({tokens, top_k}, at::kLong), testing::random_tensor({tokens, top_k}, 41, dtype).abs()};
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < top_k; ++k) routing.experts[t][k] = (t + k) % (experts - 1);
  return routing;
}

at::Tensor merged(const at::Tensor& w, const lora::LoraFactors* lora, int64_t e) {
  return lora ? w + lora->scaling * at::mm(lora->b[e], lora->a[e]) : w;
}

// Computes one token-choice at a time with materialised weights.
at::Tensor naive(const at::Tensor& x, const Routing& routing, const ExpertWeights& weights,
                 const ExpertFactors& adapters) {
  auto y = at::zeros_like(x);
  for (int64_t t = 0; t < x.size(0); ++t)
    for (int64_t k = 0; k < routing.experts.size(1); ++k) {
      const auto e = routing.experts[t][k].item<int64_t>();
      const auto i = static_cast<size_t>(e);
      const auto g = at::mv(merged(weights.gate[i].values_OI, adapters.gate.adapter, e), x[t]);
      const auto u = at::mv(merged(weights.up[i].values_OI, adapters.up.adapter, e), x[t]);
      y[t] +=
          routing.weights[t][k] * at::mv(merged(weights.down[i].values_OI, adapters.down.adapter, e), at::silu(g) * u);
    }
  return y;
}

TEST(Experts, A16BitOrSharedChangeIsUsedWithoutConversion) {
  const auto weights = make_weights(kExperts, kWidth, kHidden, at::kFloat);
  const auto factors = make_factors(kExperts, kWidth, kHidden, kRank, at::kBFloat16);
  const auto routing = cyclic_routing(kTokens, kExperts, kTopK, at::kFloat);
  const lora::LoraFactors dense{at::eye(kHidden).expand({kExperts, kHidden, kHidden}),
                                testing::random_tensor({kExperts, kWidth, kHidden}, 51, at::kFloat),
                                {},
                                1};
  const auto run = [&](bool widened) {
    std::array<lora::LoraFactors, 3> changes{factors.gate, dense, factors.down};
    for (auto& change : changes) {
      if (widened) change = {change.a.to(at::kFloat).contiguous(), change.b.to(at::kFloat).contiguous(), {}, 1};
      change.scaling = 1;
    }
    const ExpertFactors changed{{.change = &changes[0]}, {.change = &changes[1]}, {.change = &changes[2]}};
    const auto x = testing::random_tensor({kTokens, kHidden}, 1, at::kFloat).requires_grad_(true);
    const auto y = experts(x, routing, weights, changed);
    y.pow(2).sum().backward();
    return std::pair{y.detach(), x.grad()};
  };
  const auto stored = run(false), widened = run(true);
  EXPECT_TRUE(at::equal(stored.first, widened.first) && at::equal(stored.second, widened.second));
  const auto without = experts(testing::random_tensor({kTokens, kHidden}, 1, at::kFloat), routing, weights, {});
  EXPECT_GT(testing::max_difference(stored.first, without), 0.1);
}

TEST(Experts, EqualOneTokenAtATimeWithMergedWeights) {
  const auto x = testing::random_tensor({kTokens, kHidden}, 1);
  const auto weights = make_weights(kExperts, kWidth, kHidden);
  const auto factors = make_factors(kExperts, kWidth, kHidden, kRank);
  const auto routing = cyclic_routing(kTokens, kExperts, kTopK);
  EXPECT_LT(
      testing::max_difference(experts(x, routing, weights, factors.view()), naive(x, routing, weights, factors.view())),
      1e-12);
  EXPECT_LT(testing::max_difference(experts(x, routing, weights, {}), naive(x, routing, weights, {})), 1e-12);
}

TEST(Experts, GradientsOfInputGatesAndAdaptersMatchCentralDifferences) {
  const auto weights = make_weights(kExperts, kWidth, kHidden);
  for (const int64_t k : {1, 2}) {
    const auto routing = cyclic_routing(kTokens, kExperts, k);
    const auto f = make_factors(kExperts, kWidth, kHidden, kRank);
    testing::expect_gradients_match(
        [&](const std::vector<at::Tensor>& in) {
          const StackedFactors factors{{in[2], in[3], {}, 0.5}, {in[4], in[5], {}, 0.6}, {in[6], in[7], {}, 0.7}};
          return experts(in[0], {routing.experts, in[1]}, weights, factors.view());
        },
        {testing::random_tensor({kTokens, kHidden}, 1), routing.weights, f.gate.a, f.gate.b, f.up.a, f.up.b, f.down.a,
         f.down.b});
  }
}

TEST(Experts, GradientsOfTheExpertWeightsMatchCentralDifferences) {
  const auto routing = cyclic_routing(7, 4, 2);
  const auto base = make_weights(4, 3, 5);
  std::vector<at::Tensor> inputs{testing::random_tensor({7, 5}, 1)};
  for (const auto* matrices : {&base.gate, &base.up, &base.down})
    for (const auto& weight : *matrices) inputs.push_back(weight.values_OI);
  testing::expect_gradients_match(
      [&](const std::vector<at::Tensor>& in) {
        const ExpertWeights weights{
            {in.begin() + 1, in.begin() + 5}, {in.begin() + 5, in.begin() + 9}, {in.begin() + 9, in.end()}};
        return experts(in[0], routing, weights, {});
      },
      inputs);
}

TEST(Experts, ACoreBetweenTheFactorsGetsItsGradient) {
  const auto weights = make_weights(kExperts, kWidth, kHidden);
  const auto f = make_factors(kExperts, kWidth, kHidden, kRank);
  const auto routing = cyclic_routing(kTokens, kExperts, kTopK);
  const auto x = testing::random_tensor({kTokens, kHidden}, 1);
  testing::expect_gradients_match(
      [&](const std::vector<at::Tensor>& in) {
        const lora::LoraFactors up{f.up.a, f.up.b, in[0], 0.9};
        return experts(x, routing, weights, {{}, {&up}, {}});
      },
      {testing::random_tensor({kExperts, kRank, kRank}, 51)});
}

TEST(Experts, AnIdleExpertGetsAZeroGradient) {
  auto factors = make_factors(kExperts, kWidth, kHidden, kRank);
  for (auto* lora : {&factors.gate, &factors.up, &factors.down}) {
    lora->a.requires_grad_(true);
    lora->b.requires_grad_(true);
  }
  const auto routing = cyclic_routing(kTokens, kExperts, kTopK);
  experts(testing::random_tensor({kTokens, kHidden}, 1), routing, make_weights(kExperts, kWidth, kHidden),
          factors.view())
      .sum()
      .backward();
  for (const auto* lora : {&factors.gate, &factors.up, &factors.down})
    for (const auto& t : {lora->a, lora->b}) {
      EXPECT_EQ(t.grad()[kExperts - 1].abs().max().item<double>(), 0.0);
      EXPECT_GT(t.grad()[0].abs().max().item<double>(), 0.0);
    }
}

ExpertWeights widened(const ExpertWeights& weights) {
  auto wide = weights;
  for (auto* matrices : {&wide.gate, &wide.up, &wide.down})
    for (auto& w : *matrices) w = w.widened(at::kFloat);
  return wide;
}

TEST(Experts, BitsDoNotDependOnThreadsAndRepeat) {
  const int64_t tokens = 300, hidden = 48, width = 40, count = 9;
  const auto weights = make_weights(count, width, hidden, at::kBFloat16);
  const auto factors = make_factors(count, width, hidden, 4, at::kFloat);
  const auto x = testing::random_tensor({tokens, hidden}, 1, at::kFloat);
  for (const int64_t top_k : {1, 3}) {
    const auto routing = cyclic_routing(tokens, count, top_k, at::kFloat);
    const auto run = [&](int threads) {
      const int before = at::get_num_threads();
      at::set_num_threads(threads);
      std::vector<at::Tensor> leaves{x};
      for (const auto* lora : {&factors.gate, &factors.up, &factors.down})
        for (const auto& factor : {lora->a, lora->b}) leaves.push_back(factor);
      for (auto& leaf : leaves) leaf = leaf.clone().requires_grad_(true);
      const StackedFactors factors{
          {leaves[1], leaves[2], {}, 0.5}, {leaves[3], leaves[4], {}, 0.6}, {leaves[5], leaves[6], {}, 0.7}};
      std::vector<at::Tensor> results{experts(leaves[0], routing, weights, factors.view())};
      results[0].pow(2).sum().backward();
      for (const auto& leaf : leaves) results.push_back(leaf.grad());
      at::set_num_threads(before);
      return results;
    };
    const auto one = run(1);
    for (const int threads : {1, 2, 3, 16}) {
      const auto again = run(threads);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], again[i])) << threads << " threads, " << i;
    }
    EXPECT_LT(testing::max_difference(one[0], naive(x, routing, widened(weights), factors.view())) /
                  one[0].abs().max().item<double>(),
              1e-5);
  }
}

// Checks that several threads compute the largest expert together, and each other expert alone. An expert's row takes
// 3 * hidden * width multiply-adds in the forward pass and 6 in the backward pass.
void expect_one_expert_of_all_threads(const Routing& routing, int64_t count, int64_t matrix, int64_t threads) {
  const kernels::ExpertSlots slots(
      {routing.experts.const_data_ptr<int64_t>(), static_cast<size_t>(routing.experts.numel())},
      routing.experts.size(1), count);
  for (const int64_t pass : {3, 6}) EXPECT_EQ(slots.data_parallel_experts(threads, pass * matrix), 1) << threads;
}

// Nine of ten tokens go to one expert, which all threads then compute together.
TEST(Experts, BitsDoNotDependOnThreadsWhenOneExpertHasMostTokens) {
  const int64_t tokens = 2000, hidden = 192, width = 160, count = 9;
  const auto weights = make_weights(count, width, hidden, at::kBFloat16);
  auto routing = cyclic_routing(tokens, count, 1, at::kFloat);
  routing.experts.narrow(0, 0, tokens / 10 * 9).fill_(3);
  const auto run = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    auto factors = make_factors(count, width, hidden, 4, at::kFloat);
    std::vector<at::Tensor> leaves{testing::random_tensor({tokens, hidden}, 1, at::kFloat)};
    for (const auto* lora : {&factors.gate, &factors.up, &factors.down})
      for (const auto& factor : {lora->a, lora->b}) leaves.push_back(factor);
    for (auto& leaf : leaves) leaf.requires_grad_(true);
    std::vector<at::Tensor> results{experts(leaves[0], routing, weights, factors.view())};
    results[0].pow(2).sum().backward();
    for (const auto& leaf : leaves) results.push_back(leaf.grad());
    at::set_num_threads(before);
    return results;
  };
  const auto one = run(1);
  for (const int threads : {2, 3, 4, 16}) {
    expect_one_expert_of_all_threads(routing, count, hidden * width, threads);
    const auto again = run(threads);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], again[i])) << threads << " threads, " << i;
  }
}

TEST(Experts, Int8WeightsEqualTheirDequantisedWeights) {
  auto weights = make_weights(kExperts, kWidth, kHidden, at::kFloat);
  for (auto* matrices : {&weights.gate, &weights.up, &weights.down})
    for (auto& w : *matrices) w = quantized(w.values_OI);
  const auto factors = make_factors(kExperts, kWidth, kHidden, kRank, at::kFloat);
  const auto routing = cyclic_routing(kTokens, kExperts, kTopK, at::kFloat);
  const auto run = [&](const ExpertWeights& of) {
    const auto x = testing::random_tensor({kTokens, kHidden}, 1, at::kFloat).requires_grad_(true);
    const auto y = experts(x, routing, of, factors.view());
    y.pow(2).sum().backward();
    return at::cat({y.detach(), x.grad()});
  };
  const auto exact = run(widened(weights));
  EXPECT_LT(testing::max_difference(run(weights), exact) / exact.abs().max().item<double>(), 1e-5);
}

// Most rows of dy are zero, as in a last layer whose loss covers answers only.
TEST(Experts, SkippingTokensWithoutAGradientDoesNotChangeResults) {
  const auto weights = make_weights(kExperts, kWidth, kHidden);
  for (const int64_t k : {1, 2}) {
    const auto routing = cyclic_routing(kTokens, kExperts, k);
    auto dy = testing::random_tensor({kTokens, kHidden}, 8);
    for (int64_t t = 0; t < kTokens; ++t)
      if (t % 4 != 2) dy[t].zero_();
    const auto gradients = [&](const at::Tensor& tail) {  // a term far below rounding gives every row a gradient
      auto f = make_factors(kExperts, kWidth, kHidden, kRank);
      const auto x = testing::random_tensor({kTokens, kHidden}, 1).requires_grad_(true);
      const auto gates = routing.weights.clone().requires_grad_(true);
      std::vector<at::Tensor> leaves{x, gates};
      for (auto* lora : {&f.gate, &f.up, &f.down})
        for (auto* factor : {&lora->a, &lora->b}) leaves.push_back(factor->requires_grad_(true));
      experts(x, {routing.experts, gates}, weights, f.view()).backward(dy + tail);
      std::vector<at::Tensor> all;
      for (const auto& leaf : leaves) all.push_back(leaf.grad());
      return all;
    };
    const auto some = gradients(at::zeros({})), all = gradients(at::full({}, 1e-200));
    for (size_t i = 0; i < some.size(); ++i)
      EXPECT_LT(testing::max_difference(some[i], all[i]), 1e-13) << k << " " << i;
    EXPECT_EQ(some[0][0].abs().max().item<double>(), 0.0);
  }
}

TEST(Experts, AccumulateIntoExistingGradients) {
  const auto weights = make_weights(kExperts, kWidth, kHidden);
  auto f = make_factors(kExperts, kWidth, kHidden, kRank);
  f.up.a.requires_grad_(true);
  const auto routing = cyclic_routing(kTokens, kExperts, kTopK);
  const auto step = [&] {
    experts(testing::random_tensor({kTokens, kHidden}, 1), routing, weights, f.view()).sum().backward();
    return std::pair{f.up.a.grad().clone(), f.up.a.grad().const_data_ptr()};
  };
  const auto [once, address] = step();
  const auto [twice, same_address] = step();
  EXPECT_EQ(address, same_address);
  EXPECT_LT(testing::max_difference(twice, 2 * once), 1e-12);
}

TEST(Experts, RejectAdaptersOfAnotherShape) {
  const auto weights = make_weights(kExperts, kWidth, kHidden);
  const auto factors = make_factors(kExperts, kHidden, kWidth, kRank);
  EXPECT_THROW(experts(testing::random_tensor({kTokens, kHidden}, 1), cyclic_routing(kTokens, kExperts, kTopK), weights,
                       factors.view()),
               Error);
}

}  // namespace
}  // namespace evenkeel::nn
