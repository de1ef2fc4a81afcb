#include "nn/moe/scored_routing.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "base/plain/error.h"
#include "nn/moe/routing.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

using testing::expect_gradients_match;
using testing::max_difference;
using testing::random_tensor;
using testing::test_device;

const auto kSigmoidLogits = [] { return at::tensor({2.0, 1.8, 1.0, 0.5, -1.0, 0.2}, at::kDouble).unsqueeze(0); };

RouterRule sigmoids(bool renormalise = true) {
  return {.score = ScoreFunction::kSigmoid, .renormalise = renormalise, .group_score = GroupScore::kSumOfTwoLargest};
}

std::vector<int64_t> experts_of(const Routing& routing) {
  const auto on_cpu = routing.experts.cpu();
  const auto* data = on_cpu.const_data_ptr<int64_t>();
  return {data, data + on_cpu.numel()};
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

TEST(AtenScoredRoute, SigmoidGatesAreTheScoresOfTheSelectedDividedByTheirSum) {
  const auto raw = scored_route(kSigmoidLogits(), {.top_k = 2}, {}, sigmoids(false)).weights.flatten();
  EXPECT_NEAR(raw[0].item<double>(), logistic(2.0), 1e-12);
  EXPECT_NEAR(raw[1].item<double>(), logistic(1.8), 1e-12);
  auto rule = sigmoids();
  rule.scale = 2.5;
  const auto shares = scored_route(kSigmoidLogits(), {.top_k = 2}, {}, rule).weights.flatten();
  EXPECT_NEAR(shares[0].item<double>(), 2.5 * logistic(2.0) / (logistic(2.0) + logistic(1.8)), 1e-12);
}

TEST(AtenScoredRoute, ABiasChangesTheSelectionAndNotTheGates) {
  auto rule = sigmoids(false);
  rule.bias_E = at::tensor({0.0, -1.0, 0.0, 0.5, 0.0, 0.0}, at::kDouble);
  const auto routing = scored_route(kSigmoidLogits(), {.top_k = 2}, {}, rule);
  EXPECT_EQ(experts_of(routing), (std::vector<int64_t>{3, 0}));
  EXPECT_NEAR(routing.weights[0][0].item<double>(), logistic(0.5), 1e-12);
}

TEST(AtenScoredRoute, ATokenSelectsAmongTheBestGroups) {
  const auto logits = at::tensor({3.0, -3.0, 1.5, 1.4, 1.0, 0.9}, at::kDouble).unsqueeze(0);
  auto rule = sigmoids();
  rule.groups = 3;
  rule.kept_groups = 2;
  EXPECT_EQ(experts_of(scored_route(logits, {.top_k = 3}, {}, rule)), (std::vector<int64_t>{2, 3, 4}));
  RouterRule largest{.scale = 2, .groups = 3, .kept_groups = 2};
  EXPECT_EQ(experts_of(scored_route(logits, {.top_k = 3}, {}, largest)), (std::vector<int64_t>{0, 2, 3}));
  EXPECT_THROW(scored_route(logits, {.top_k = 5}, {}, rule), Error) << "the kept groups have four experts";
}

TEST(AtenScoredRoute, GroupScoresIncludeTheBias) {
  const auto logits = at::tensor({3.0, 2.0, 1.5, 1.4}, at::kDouble).unsqueeze(0);
  auto rule = sigmoids();
  rule.groups = 2;
  rule.kept_groups = 1;
  rule.bias_E = at::tensor({0.0, 0.0, 0.9, 0.0}, at::kDouble);
  EXPECT_EQ(experts_of(scored_route(logits, {.top_k = 2}, {}, rule)), (std::vector<int64_t>{2, 3}));
}

RouterOptions with_phi(int64_t top_k, ModulationMode mode, GateNorm norm = GateNorm::kCheckpoint) {
  return {.top_k = top_k, .gate_norm = norm, .num_candidates = 2, .mode = mode, .modulation = {}};
}

TEST(AtenScoredRoute, PhiIsAddedToTheLogitsOfCandidates) {
  const auto phi = at::tensor({-1.5, 0.1, 9.0, 9.0, 9.0, 9.0}, at::kDouble);
  const auto routing = scored_route(kSigmoidLogits(), with_phi(2, ModulationMode::kCandidate), phi, sigmoids(false));
  EXPECT_EQ(experts_of(routing), (std::vector<int64_t>{1, 2}));
  EXPECT_NEAR(routing.weights[0][0].item<double>(), logistic(1.9), 1e-12);
  EXPECT_NEAR(routing.weights[0][1].item<double>(), logistic(1.0), 1e-12);
}

TEST(AtenScoredRoute, RawGatesFollowTheLogitsWithoutPhi) {
  const auto phi = at::tensor({-1.5, 0.1, 9.0, 9.0, 9.0, 9.0}, at::kDouble).requires_grad_(true);
  auto options = with_phi(2, ModulationMode::kCandidate);
  options.raw_gates = true;
  const auto routing = scored_route(kSigmoidLogits(), options, phi, sigmoids(false));
  EXPECT_EQ(experts_of(routing), (std::vector<int64_t>{1, 2}));
  EXPECT_NEAR(routing.weights[0][0].item<double>(), logistic(1.8), 1e-12);
  EXPECT_NEAR(routing.weights[0][1].item<double>(), logistic(1.0), 1e-12);
  EXPECT_EQ(torch::autograd::grad({routing.weights.sum()}, {phi})[0].abs().max().item<double>(), 0);
}

TEST(AtenScoredRoute, PreservedExpertsComeFirstAndPhiFillsTheOtherPlaces) {
  const auto phi = at::tensor({-9.0, -9.0, -2.0, 0.0, 0.0, 1.0}, at::kDouble);
  const auto routing = scored_route(kSigmoidLogits(), with_phi(3, ModulationMode::kPreserve), phi, sigmoids(false));
  EXPECT_EQ(experts_of(routing), (std::vector<int64_t>{0, 1, 5}));
  EXPECT_NEAR(routing.weights[0][2].item<double>(), logistic(1.2), 1e-12);
}

TEST(AtenScoredRoute, ModulationStaysWithinTheGroupsOfTheToken) {
  const auto logits = testing::random_tensor({40, 12}, 21);
  const auto phi = 5 * testing::random_tensor({12}, 22);
  auto rule = sigmoids();
  rule.groups = 4;
  rule.kept_groups = 2;
  const auto groups_of = [&](const at::Tensor& row) { return row.div(3, "floor"); };
  for (const auto mode : {ModulationMode::kCandidate, ModulationMode::kPreserve}) {
    const auto plain = scored_route(logits, {.top_k = 6}, {}, rule).experts;
    const auto moved = scored_route(logits, with_phi(5, mode), phi, rule).experts;
    for (int64_t t = 0; t < 40; ++t) {
      EXPECT_TRUE(at::isin(groups_of(moved[t]), groups_of(plain[t])).all().item<bool>()) << t;
      EXPECT_EQ(std::get<0>(at::_unique2(moved[t])).numel(), 5) << t;
    }
  }
}

TEST(AtenScoredRoute, ASoftmaxWithoutLimitIsThatOfTheOrdinaryRouter) {
  const auto logits = testing::random_tensor({50, 7}, 23).to(test_device());
  const auto phi = testing::random_tensor({7}, 24).to(test_device());
  for (const bool flag : {false, true})
    for (const auto norm : {GateNorm::kCheckpoint, GateNorm::kRenormSelected, GateNorm::kSoftmaxAll})
      for (const auto mode : {ModulationMode::kCandidate, ModulationMode::kPreserve})
        for (const int64_t k : {1, 3, 7}) {
          const auto ours = scored_route(logits, with_phi(k, mode, norm), phi, {.renormalise = flag, .scale = 1.5});
          const auto theirs = route(logits.cpu(), with_phi(k, mode, norm), phi.cpu(), flag);
          EXPECT_TRUE(at::equal(ours.experts.cpu(), theirs.experts));
          EXPECT_LT(testing::max_difference(ours.weights.cpu(), 1.5 * theirs.weights), 1e-12);
        }
}

TEST(AtenScoredRoute, ZeroPhiRoutesAsWithoutOne) {
  auto rule = sigmoids();
  rule.bias_E = testing::random_tensor({12}, 25) * 0.1;
  rule.groups = 4;
  rule.kept_groups = 3;
  const auto logits = testing::random_tensor({30, 12}, 26);
  const auto plain = scored_route(logits, {.top_k = 4}, {}, rule);
  for (const auto mode : {ModulationMode::kCandidate, ModulationMode::kPreserve}) {
    const auto zero = scored_route(logits, with_phi(4, mode), at::zeros({12}), rule);
    EXPECT_TRUE(at::equal(zero.experts, plain.experts));
    EXPECT_TRUE(at::equal(zero.weights, plain.weights));
  }
}

TEST(AtenScoredRoute, GradientsOfLogitsAndPhiMatchCentralDifferences) {
  auto rule = sigmoids();
  rule.scale = 1.7;
  for (const auto mode : {ModulationMode::kCandidate, ModulationMode::kPreserve})
    for (const bool flag : {false, true})
      for (const auto score : {ScoreFunction::kSigmoid, ScoreFunction::kSoftmax})
        for (const int64_t k : {1, 3}) {
          rule.renormalise = flag;
          rule.score = score;
          testing::expect_gradients_match(
              [&](const auto& in) { return scored_route(in[0], with_phi(k, mode), in[1], rule).weights; },
              {testing::random_tensor({9, 5}, 27), testing::random_tensor({5}, 28)});
        }
}

TEST(AtenScoredRoute, ASoftmaxOverAllIsRefusedWithSigmoids) {
  const RouterOptions options{.top_k = 2, .gate_norm = GateNorm::kSoftmaxAll};
  try {
    scored_route(kSigmoidLogits(), options, {}, sigmoids());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gate_norm is softmax_all"), std::string::npos);
  }
}

TEST(AtenScoredRoute, RejectsATopKOutsideOneToE) {
  EXPECT_THROW(scored_route(kSigmoidLogits(), {.top_k = 0}, {}, sigmoids()), Error);
  EXPECT_THROW(scored_route(kSigmoidLogits(), {.top_k = 7}, {}, sigmoids()), Error);
}

}  // namespace
}  // namespace evenkeel::nn
