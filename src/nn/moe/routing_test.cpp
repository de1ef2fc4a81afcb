#include "nn/moe/routing.h"

#include <algorithm>
#include <limits>

#include "base/plain/error.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;

const auto kScores = [] { return at::tensor({2.0, 1.8, 1.0, 0.5}, at::kDouble).unsqueeze(0); };
const auto kPhi = [] { return at::tensor({-0.7, 0.1, 0.9, 0.2}, at::kDouble); };

RouterOptions modulated(int64_t top_k, ModulationMode mode, GateNorm norm = GateNorm::kRenormSelected,
                        int64_t candidates = 2) {
  return {.top_k = top_k, .gate_norm = norm, .num_candidates = candidates, .mode = mode, .modulation = {}};
}

RouterOptions plain(int64_t top_k, GateNorm norm = GateNorm::kCheckpoint) {
  return {.top_k = top_k, .gate_norm = norm, .num_candidates = 0, .mode = ModulationMode::kCandidate, .modulation = {}};
}

std::vector<int64_t> selected(const Routing& routing) {
  const auto* data = routing.experts.const_data_ptr<int64_t>();
  return {data, data + routing.experts.numel()};
}

void expect_weights(const Routing& routing, std::vector<double> expected) {
  EXPECT_LT(testing::max_difference(routing.weights.flatten(), at::tensor(expected, at::kDouble)), 1e-7);
}

TEST(Route, CandidateModulationMatchesTheWorkedExample) {
  const auto run = [](int64_t k) { return route(kScores(), modulated(k, ModulationMode::kCandidate), kPhi(), false); };
  EXPECT_EQ(selected(run(1)), std::vector<int64_t>({1}));
  EXPECT_EQ(selected(run(2)), std::vector<int64_t>({1, 0}));
  expect_weights(run(2), {.64565631, .35434369});
  EXPECT_EQ(selected(run(3)), std::vector<int64_t>({1, 0, 2}));
  expect_weights(run(3), {.51140921, .28066732, .20792347});
}

TEST(Route, PreserveModulationMatchesTheWorkedExample) {
  const auto run = [](int64_t k) { return route(kScores(), modulated(k, ModulationMode::kPreserve), kPhi(), false); };
  EXPECT_EQ(selected(run(1)), std::vector<int64_t>({0}));
  EXPECT_EQ(selected(run(2)), std::vector<int64_t>({0, 1}));
  expect_weights(run(2), {.549833997, .450166003});
  EXPECT_EQ(selected(run(3)), std::vector<int64_t>({0, 1, 2}));
  expect_weights(run(3), {.36716540, .30060961, .33222499});
}

TEST(Route, NativeGatesAreTheSoftmaxOverAllModulatedScores) {
  const auto routing = route(kScores(), modulated(1, ModulationMode::kCandidate, GateNorm::kCheckpoint), kPhi(), false);
  expect_weights(routing, {.45413709});
}

TEST(Route, ACandidateCanBeDemotedOutOfTheSelection) {
  auto phi = kPhi();
  phi[0] = -1.2;
  EXPECT_EQ(selected(route(kScores(), modulated(2, ModulationMode::kCandidate), phi, false)),
            std::vector<int64_t>({1, 2}));
  auto all =
      selected(route(kScores(), modulated(2, ModulationMode::kCandidate, GateNorm::kRenormSelected, 4), kPhi(), false));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, std::vector<int64_t>({1, 2}));
}

// With N_p <= K the candidates are selected anyway (docs/claims.md).
TEST(Route, CandidatesUpToKAreNeverPromoted) {
  const auto scores = random_tensor({50, 7}, 4, at::kFloat), phi = random_tensor({7}, 6, at::kFloat);
  const auto chosen = [&](int64_t k, const at::Tensor& offsets) {
    return std::get<0>(route(scores, modulated(k, ModulationMode::kCandidate), offsets, false).experts.sort(1));
  };
  for (const int64_t k : {2, 3, 5}) {
    EXPECT_TRUE(at::equal(chosen(k, phi.abs()), chosen(k, at::zeros({7})))) << k;
    EXPECT_FALSE(at::equal(chosen(k, -10 * phi.abs()), chosen(k, at::zeros({7})))) << k;
  }
  EXPECT_FALSE(at::equal(chosen(1, phi.abs()), chosen(1, at::zeros({7}))));
}

TEST(Route, TiesGoToTheLowestIndex) {
  const auto scores = at::tensor({1.0, 2.0, 2.0, 1.0, 2.0}, at::kDouble).unsqueeze(0);
  EXPECT_EQ(selected(route(scores, plain(4), {}, false)), std::vector<int64_t>({1, 2, 4, 0}));
}

TEST(Route, ZeroPhiRoutesAsPlainTopK) {
  const auto scores = testing::random_tensor({50, 7}, 3, at::kFloat);
  const auto unmodulated = route(scores, plain(3), {}, false);
  for (const auto mode : {ModulationMode::kCandidate, ModulationMode::kPreserve}) {
    const auto zero = route(scores, modulated(3, mode, GateNorm::kCheckpoint), at::zeros({7}), false);
    EXPECT_TRUE(at::equal(zero.experts, unmodulated.experts));
    EXPECT_TRUE(at::equal(zero.weights, unmodulated.weights));
  }
}

TEST(Route, SelectsWhatSoftmaxAndTopKSelect) {
  const auto scores = testing::random_tensor({200, 13}, 5, at::kFloat);
  for (const bool norm : {false, true}) {
    const auto routing = route(scores, plain(5), {}, norm);
    auto [top, index] = at::topk(at::softmax(scores, 1), 5, 1);
    if (norm) top = top / top.sum(1, true);
    EXPECT_TRUE(at::equal(routing.experts, index));
    EXPECT_LT(testing::max_difference(routing.weights, top), 1e-6);
  }
}

TEST(Route, GradientsOfLogitsAndPhiMatchCentralDifferences) {
  for (const auto mode : {ModulationMode::kCandidate, ModulationMode::kPreserve})
    for (const auto norm : {GateNorm::kCheckpoint, GateNorm::kRenormSelected})
      for (const int64_t k : {1, 3})
        testing::expect_gradients_match(
            [&](const auto& in) { return route(in[0], modulated(k, mode, norm), in[1], false).weights; },
            {testing::random_tensor({9, 5}, 7), testing::random_tensor({5}, 8)});
}

TEST(Route, OneRenormalisedExpertGivesExactlyZeroGradient) {
  const auto scores = testing::random_tensor({20, 6}, 9, at::kFloat).requires_grad_(true);
  const auto phi = testing::random_tensor({6}, 10, at::kFloat).requires_grad_(true);
  const auto routing = route(scores, modulated(1, ModulationMode::kCandidate), phi, false);
  EXPECT_TRUE(at::equal(routing.weights, at::ones({20, 1})));
  (routing.weights * testing::random_tensor({20, 1}, 11, at::kFloat)).sum().backward();
  EXPECT_EQ(scores.grad().abs().max().item<float>(), 0.0f);
  EXPECT_EQ(phi.grad().abs().max().item<float>(), 0.0f);
}

TEST(Route, GateNormOverridesTheCheckpoint) {
  const auto scores = testing::random_tensor({17, 6}, 15);
  const auto all = [&](GateNorm norm, bool flag) { return route(scores, plain(3, norm), {}, flag).weights; };
  EXPECT_TRUE(at::equal(all(GateNorm::kSoftmaxAll, true), all(GateNorm::kCheckpoint, false)));
  EXPECT_TRUE(at::equal(all(GateNorm::kRenormSelected, false), all(GateNorm::kCheckpoint, true)));
  EXPECT_LT(all(GateNorm::kSoftmaxAll, true).sum(-1).max().item<double>(), 0.99);
}

TEST(Route, AConstantOnAllScoresDoesNotChangeRenormalisedGates) {
  const auto scores = testing::random_tensor({30, 6}, 12);
  const auto options = plain(3, GateNorm::kRenormSelected);
  EXPECT_LT(testing::max_difference(route(scores, options, {}, false).weights,
                                    route(scores + 3.5, options, {}, false).weights),
            1e-12);
}

TEST(Route, ANonFiniteScoreStillSelectsKDifferentExperts) {
  auto scores = testing::random_tensor({1, 6}, 13, at::kFloat);
  scores[0][0] = std::numeric_limits<float>::quiet_NaN();
  scores[0][3] = std::numeric_limits<float>::infinity();
  auto experts = selected(route(scores, modulated(4, ModulationMode::kPreserve), at::zeros({6}), false));
  std::sort(experts.begin(), experts.end());
  EXPECT_EQ(std::unique(experts.begin(), experts.end()) - experts.begin(), 4);
}

TEST(Route, AnOutputScaleMultipliesTheGatesAndGetsAGradient) {
  const auto scores = testing::random_tensor({9, 6}, 14);
  auto options = plain(2, GateNorm::kRenormSelected);
  const auto unscaled = route(scores, options, {}, false);
  options.output_scale = at::full({1}, 1.5, scores.options()).requires_grad_(true);
  const auto scaled = route(scores, options, {}, false);
  EXPECT_TRUE(scaled.experts.equal(unscaled.experts));
  EXPECT_LT(testing::max_difference(scaled.weights, unscaled.weights * 1.5), 1e-12);
  scaled.weights.sum().backward();
  EXPECT_NEAR(options.output_scale.grad().item<double>(), 9.0, 1e-12);  // renormalised gates sum to one per token
}

TEST(Route, RejectsATopKOutsideOneToE) {
  EXPECT_THROW(route(kScores(), plain(0), {}, false), Error);
  EXPECT_THROW(route(kScores(), plain(5), {}, false), Error);
  EXPECT_THROW(route(kScores(), modulated(2, ModulationMode::kCandidate, GateNorm::kCheckpoint, 5), kPhi(), false),
               Error);
}

}  // namespace
}  // namespace evenkeel::nn
