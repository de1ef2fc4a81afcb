// What both engines compute outside of decoders. models/engines_test.cpp compares whole models.
#include "nn/engines/engine_of.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/plain/error.h"
#include "nn/dense/logits_memory.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

TEST(BothEngines, ApplyASoftCapToTheLogits) {
  const auto targets = at::tensor({3, 0, 10, 3, 7}, at::kLong);
  const std::array<int64_t, 1> counts{5};
  const auto hidden = testing::random_tensor({5, 4}, 1) * 3, head = testing::random_tensor({11, 4}, 2);
  const auto capped = 1.5 * at::tanh(at::mm(hidden, head.t()) / 1.5);
  const auto expected = at::log_softmax(capped, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
  for (const auto kind : {EngineKind::kKernels, EngineKind::kAten}) {
    const Compute compute{.engine = kind};
    const auto& engine = engine_of(compute);
    const auto loss = [&](const at::Tensor& x, const at::Tensor& w) {
      return engine.cross_entropies(x, w, targets, counts, compute, 1.5).front().sum;
    };
    EXPECT_LT(testing::max_difference(engine.logits(hidden, head, compute, 1.5), capped), 1e-12);
    EXPECT_LT(testing::max_difference(engine.target_logprobs(hidden, head, targets, compute, 1.5), expected), 1e-12);
    EXPECT_NEAR(loss(hidden, head).item<double>(), -expected.sum().item<double>(), 1e-11);
    testing::expect_gradients_match([&](const auto& in) { return loss(in[0], in[1]); }, {hidden, head});
    testing::expect_gradients_match([&](const auto& in) { return loss(in[0], head); }, {hidden});
  }
}

TEST(BothEngines, DifferentiateLogitsByTheHiddenStates) {
  const auto hidden = testing::random_tensor({5, 4}, 1) * 3, head = testing::random_tensor({11, 4}, 2),
             weights = testing::random_tensor({5, 11}, 3);
  for (const auto kind : {EngineKind::kKernels, EngineKind::kAten})
    for (const double soft_cap : {0.0, 1.5}) {
      const Compute compute{.engine = kind};
      const auto sum = [&](const auto& in) {
        return (engine_of(compute).logits(in[0], head, compute, soft_cap) * weights).sum();
      };
      testing::expect_gradients_match(sum, {hidden});
    }
}

TEST(BothEngines, GiveTheHeadTheSameGradientAcrossChunks) {
  constexpr int64_t rows = 59, vocabulary = 600000;
  static_assert(4 * rows * vocabulary > kLogitsBytes, "more rows than one chunk takes");
  const std::array<int64_t, 1> counts{rows};
  const auto targets = at::arange(rows).mul_(9973);
  std::vector<at::Tensor> gradients;
  for (const auto kind : {EngineKind::kKernels, EngineKind::kAten}) {
    auto hidden = testing::random_tensor({rows, 3}, 1).requires_grad_(true),
         head = testing::random_tensor({vocabulary, 3}, 2).requires_grad_(true);
    const Compute compute{.engine = kind};
    engine_of(kind).cross_entropies(hidden, head, targets, counts, compute, 0).front().sum.backward();
    gradients.insert(gradients.end(), {hidden.grad(), head.grad()});
  }
  EXPECT_LT(testing::apart_by_norm(gradients[2], gradients[0]), 1e-11);
  EXPECT_LT(testing::apart_by_norm(gradients[3], gradients[1]), 1e-11);
}

TEST(BothEngines, RefuseSeveralSumsOfATrainedHead) {
  const auto head = testing::random_tensor({11, 4}, 2).requires_grad_(true);
  const std::array<int64_t, 2> counts{1, 1};
  for (const auto kind : {EngineKind::kKernels, EngineKind::kAten})
    EXPECT_THROW(engine_of(kind).cross_entropies(testing::random_tensor({2, 4}, 1), head, at::tensor({3, 0}, at::kLong),
                                                 counts, {.engine = kind}, 0),
                 Error);
}

TEST(BothEngines, RefuseSizesThatDisagree) {
  const auto x = testing::random_tensor({6, 4}, 1), head = testing::random_tensor({11, 5}, 2);
  const auto targets = at::tensor({3, 0, 10, 3, 7, 1}, at::kLong);
  const std::array<int64_t, 1> counts{6};
  for (const auto kind : {EngineKind::kKernels, EngineKind::kAten}) {
    const Compute compute{.engine = kind};
    EXPECT_THROW(engine_of(kind).linear(x, head, compute), Error);
    EXPECT_THROW(engine_of(kind).cross_entropies(x, head, targets, counts, compute, 0), Error);
    EXPECT_THROW(engine_of(kind).target_logprobs(x, head, targets, compute, 0), Error);
  }
}

/// A row that is gathered twice gets the sum of both gradients, one that is not gathered none.
TEST(BothEngines, SumTheGradientsOfGatheredRows) {
  const auto index = at::tensor({4, 1, 4}, at::kLong);
  const auto direction = testing::random_tensor({3, 2}, 5);
  for (const auto kind : {EngineKind::kKernels, EngineKind::kAten}) {
    auto x = testing::random_tensor({5, 2}, 1).requires_grad_(true);
    (engine_of(kind).rows(x, index) * direction).sum().backward();
    EXPECT_LT(testing::max_difference(x.grad()[4], direction[0] + direction[2]), 1e-14);
    EXPECT_LT(testing::max_difference(x.grad()[1], direction[1]), 1e-14);
    EXPECT_EQ(x.grad()[0].abs().sum().item<double>(), 0);
  }
}

}  // namespace
}  // namespace evenkeel::nn
