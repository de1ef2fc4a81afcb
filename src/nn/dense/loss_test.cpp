#include "nn/dense/loss.h"

#include <array>
#include <tuple>

#include "base/plain/error.h"
#include "nn/dense/norm.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

TEST(RmsNorm, HasUnitMeanSquareBeforeTheWeight) {
  const auto x = testing::random_tensor({6, 37}, 1) * 5, w = testing::random_tensor({37}, 2);
  const auto expected = w * x / (x.pow(2).mean(1, true) + 1e-5).sqrt();
  EXPECT_LT(testing::max_difference(rms_norm(x, w, 1e-5), expected), 1e-12);
  EXPECT_LT(testing::max_difference(rms_norm(x.to(at::kFloat), w.to(at::kBFloat16), 1e-5),
                                    rms_norm(x, w.to(at::kBFloat16).to(at::kDouble), 1e-5)),
            1e-5);
}

TEST(RmsNorm, GradientsMatchCentralDifferences) {
  testing::expect_gradients_match([](const auto& in) { return rms_norm(in[0], in[1], 1e-5); },
                                  {testing::random_tensor({3, 19}, 1), testing::random_tensor({19}, 2)});
}

TEST(CrossEntropy, EqualsMinusTheSummedLogSoftmaxAcrossChunks) {
  constexpr int64_t rows = 59, vocabulary = 600000;
  static_assert(4 * rows * vocabulary > kLogitsBytes, "more rows than one chunk takes");
  const auto hidden = testing::random_tensor({rows, 3}, 1, at::kFloat),
             head = testing::random_tensor({vocabulary, 3}, 2, at::kFloat);
  const auto targets = at::randint(vocabulary, {rows}, at::kLong);
  const auto logits = at::mm(hidden, head.t()).to(at::kDouble);
  const auto expected = at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
  const auto loss = cross_entropy(hidden, head, targets);
  EXPECT_EQ(loss.count, rows);
  EXPECT_NEAR(loss.sum.item<double>(), -expected.sum().item<double>(), 1e-3);
  EXPECT_LT(testing::max_difference(target_logprobs(hidden, head, targets), expected), 1e-4);
}

TEST(CrossEntropy, GradientsOfHiddenAndHeadMatchCentralDifferences) {
  const auto targets = at::tensor({3, 0, 10, 3, 7}, at::kLong);
  testing::expect_gradients_match([&](const auto& in) { return cross_entropy(in[0], in[1], targets).sum; },
                                  {testing::random_tensor({5, 4}, 1), testing::random_tensor({11, 4}, 2)});
}

TEST(CrossEntropy, SeveralSumsHaveSeparateValuesAndGradients) {
  const auto targets = at::tensor({3, 0, 10, 3, 7}, at::kLong);
  const auto hidden = testing::random_tensor({5, 4}, 1), head = testing::random_tensor({11, 4}, 2);
  const std::array<int64_t, 3> counts{2, 0, 3};
  const auto losses = cross_entropies(hidden, head, targets, counts);
  ASSERT_EQ(losses.size(), 3);
  EXPECT_EQ(losses[0].count, 2);
  EXPECT_EQ(losses[1].sum.item<double>(), 0);
  for (const auto& [which, first, count] : {std::tuple{0, 0, 2}, std::tuple{2, 2, 3}})
    EXPECT_NEAR(losses[static_cast<size_t>(which)].sum.item<double>(),
                cross_entropy(hidden.narrow(0, first, count), head, targets.narrow(0, first, count)).sum.item<double>(),
                1e-12);
  testing::expect_gradients_match(
      [&](const auto& in) {
        const auto each = cross_entropies(in[0], head, targets, counts);
        return 0.5 * each[0].sum + 3 * each[2].sum;
      },
      {hidden});
}

TEST(CrossEntropy, NoTargetsGiveZeroLossAndZeroCount) {
  const auto loss =
      cross_entropy(testing::random_tensor({0, 4}, 1), testing::random_tensor({11, 4}, 2), at::empty({0}, at::kLong));
  EXPECT_EQ(loss.count, 0);
  EXPECT_EQ(loss.sum.item<double>(), 0.0);
}

TEST(CrossEntropy, RejectsATargetOutsideTheVocabulary) {
  EXPECT_THROW(
      cross_entropy(testing::random_tensor({1, 4}, 1), testing::random_tensor({11, 4}, 2), at::tensor({11}, at::kLong)),
      Error);
  EXPECT_THROW(
      cross_entropy(testing::random_tensor({1, 4}, 1), testing::random_tensor({11, 4}, 2), at::tensor({-1}, at::kLong)),
      Error);
}

TEST(CrossEntropy, ExtremeLogitsStayFinite) {
  const auto hidden = at::tensor({300.0f, -300.0f}).unsqueeze(1), head = at::tensor({1.0f, -1.0f, 0.0f}).unsqueeze(1);
  const auto logprobs = target_logprobs(hidden, head, at::tensor({1, 1}, at::kLong));
  EXPECT_NEAR(logprobs[0].item<double>(), -600.0, 1e-3);
  EXPECT_NEAR(logprobs[1].item<double>(), 0.0, 1e-3);
}

}  // namespace
}  // namespace evenkeel::nn
