// Tests for mistakes in published code, and for misreadings of papers that give a running program. Each test has the
// name of the mistake, computes the value that it would give, and checks that the method returns the right value.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lora/algebra.h"
#include "one_site.h"
#include "tiny_federation.h"

namespace evenkeel {
namespace {

at::Tensor product(const lora::LoraFactors& factors) { return lora::delta_weight(factors).to(at::kDouble); }
at::Tensor change(const methods::ServerState& state) { return effect(state).at(kSite); }

/// Returns random factors [rank, 2] and [3, rank] of a site that is not square.
lora::LoraFactors random_update(uint64_t seed, int64_t rank, double scaling = 1) {
  at::manual_seed(seed);
  return {.a = at::randn({rank, 2}), .b = at::randn({3, rank}), .scaling = scaling};
}

OneSite tall(const std::string& name, const std::string& toml = "") {
  OneSite world(name, toml);
  world.sites.at(kSite).out = 3;
  return world;
}

// --- FedIT ---

TEST(FedItMistakes, OnlyTheFirstClientSurvivesTheSum) {
  const auto next = OneSite("fedit").aggregate({first_update(), second_update()});
  expect_not_mistaken(next.global.adapters.at(kSite).a, matrix({{2, .5}}), first_update().a * .5);
}

TEST(FedItMistakes, ClientsAreWeightedEqually) {
  for (const std::string name : {"fedit", "fedex-lora"}) {
    auto world = tall(name);
    world.weights = {.2, .8};
    const auto x = random_update(1, 1), y = random_update(2, 1);
    const auto a = world.aggregate({x, y}).global.adapters.at(kSite).a;
    expect_not_mistaken(a, x.a * .2 + y.a * .8, (x.a + y.a) / 2);
  }
}

// --- FedEx-LoRA ---

TEST(FedExMistakes, TheResidualIsAddedTransposed) {
  const auto next = OneSite("fedex-lora").aggregate({first_update(), second_update()});
  const auto residual = matrix({{-.5, .75}, {.5, -.75}}), mean = matrix({{1, .25}, {1, .25}});
  expect_not_mistaken(change(next), mean + residual, mean + residual.t());
}

TEST(FedExMistakes, TheResidualLosesTheScale) {
  auto world = tall("fedex-lora");
  world.alpha = 3;
  const auto x = random_update(3, 1, 3), y = random_update(4, 1, 3);
  const auto mean_of_products = (product(x) + product(y)) / 2;
  const auto product_of_means = 3 * at::matmul((x.b + y.b) / 2, (x.a + y.a) / 2).to(at::kDouble);
  expect_not_mistaken(change(world.aggregate({x, y})), mean_of_products,
                      product_of_means + (mean_of_products - product_of_means) / 3);
}

TEST(FedExMistakes, TheBaseIsLoadedAgainBeforeEachResidual) {
  const auto world = tall("fedex-lora");
  const auto x = random_update(5, 1), y = random_update(6, 1), u = random_update(7, 1), v = random_update(8, 1);
  const auto first = world.aggregate({x, y}), second = world.aggregate(first, {u, v});
  const auto residual = product(first.global.base_delta.at(kSite)), mean = (product(u) + product(v)) / 2;
  expect_not_mistaken(change(second), residual + mean, mean);
}

TEST(FedExMistakes, TheResidualIsTheDifferenceOfTwoRoundedProducts) {
  auto x = random_update(9, 1);
  auto y = x;
  y.a = x.a + 1e-4 * at::randn_like(x.a), y.b = x.b + 1e-4 * at::randn_like(x.b);
  const auto residual = product(tall("fedex-lora").aggregate({x, y}).global.base_delta.at(kSite));
  const auto d = [](const at::Tensor& t) { return t.to(at::kDouble); };
  const auto exact = at::matmul(d(x.b) - d(y.b), d(x.a) - d(y.a)) / 4;
  const auto rounded =
      (product(x).to(at::kFloat) + product(y).to(at::kFloat)) / 2 - at::matmul((x.b + y.b) / 2, (x.a + y.a) / 2);
  const auto error = [&](const at::Tensor& t) { return ((d(t) - exact).norm() / exact.norm()).item<double>(); };
  EXPECT_LT(error(residual), 1e-2);
  EXPECT_GT(error(rounded), 0.5);
}

// --- FLoRA ---

TEST(FloraMistakes, TheWeightsScaleBothFactors) {
  auto world = tall("flora");
  world.weights = {.2, .8};
  const auto x = random_update(11, 1), y = random_update(12, 2);
  expect_not_mistaken(change(world.aggregate({x, y})), .2 * product(x) + .8 * product(y),
                      .04 * product(x) + .64 * product(y));
}

// The mistake sets alpha and r of the stack as if all clients had the same: C alpha over the sum of ranks.
TEST(FloraMistakes, TheStackHasOneScale) {
  const auto x = random_update(13, 1, 6), y = random_update(14, 2, 3);
  const double stack_scale = 2 * 6.0 / (1 + 2);
  expect_not_mistaken(change(tall("flora").aggregate({x, y})), (product(x) + product(y)) / 2,
                      stack_scale * (product(x) / 6 + product(y) / 3) / 2);
}

// If the output is as wide as the rank, B has r_c rows as well, and the mistake applies the weight to it too.
TEST(FloraMistakes, AIsRecognisedByItsNumberOfRows) {
  OneSite world("flora");
  world.weights = {.2, .8};
  at::manual_seed(15);
  const lora::LoraFactors x{.a = at::randn({2, 2}), .b = at::randn({2, 2})},
      y{.a = at::randn({2, 2}), .b = at::randn({2, 2})};
  expect_not_mistaken(change(world.aggregate({x, y})), .2 * product(x) + .8 * product(y),
                      .04 * product(x) + .64 * product(y));
}

TEST(FloraMistakes, AdaptersSurviveTheMerge) {
  for (const std::string name : {"flora", "florist"}) {
    auto world = tall(name);
    const auto next = world.aggregate({random_update(16, 1), random_update(17, 1)});
    EXPECT_TRUE(world.prepared(next, world.client(0)).b.eq(0).all().item<bool>()) << name << " counts a round twice";
    EXPECT_GT(change(next).abs().max().item<double>(), 0.1);
  }
}

// An update below |w| / 512 never changes a bfloat16 weight, however often it is added.
TEST(FloraMistakes, ABfloat16BaseSwallowsTheUpdate) {
  const auto world = tall("flora");
  const auto tiny = lora::LoraFactors{.a = at::full({1, 2}, 1e-3), .b = at::ones({3, 1})};
  auto weight = at::ones({3, 2}, at::kBFloat16);
  auto state = world.method->initialize(world.server());
  for (int64_t t = 0; t < 20; ++t) {
    state = world.aggregate(state, {tiny, tiny});
    weight = weight + product(tiny).to(at::kBFloat16);
  }
  expect_not_mistaken(change(state), at::full({3, 2}, .02), weight - 1);
}

// --- FLoRIST ---

TEST(FloristMistakes, TheFirstClientEntersTheStackTwice) {
  auto world = tall("florist", "tau = 1.0");
  world.weights = {.2, .8};
  const auto x = random_update(21, 1), y = random_update(22, 1);
  expect_not_mistaken(change(world.aggregate({x, y})), .2 * product(x) + .8 * product(y),
                      (.2 + .04) * product(x) + .8 * product(y), 1e-5);
}

// Two clients of rank 1 give a stack of two rows, as many as the third client's rank.
TEST(FloristMistakes, TheStackIsWeightedAgainIfItHasAsManyRowsAsAClientsRank) {
  auto world = tall("florist", "tau = 1.0");
  world.weights = {.2, .3, .5};
  const auto x = random_update(23, 1), y = random_update(24, 1), z = random_update(25, 2);
  const auto before = .2 * product(x) + .3 * product(y), last = .5 * product(z);
  expect_not_mistaken(change(world.aggregate({x, y, z})), before + last, .5 * before + last, 1e-5);
}

// The first singular value of the mean update has 68 % of the energy but 59 % of the sum.
TEST(FloristMistakes, TheThresholdIsOnSingularValuesInsteadOfTheirSquares) {
  const auto next = OneSite("florist", "tau = 0.65").aggregate({first_update(), second_update()});
  const auto svd = lora::product_svd({.a = matrix(kMeanUpdate), .b = at::eye(2)});
  EXPECT_LT((svd.s[0] / svd.s.sum()).item<double>(), .65);
  EXPECT_EQ(next.global.base_delta.at(kSite).rank(), 1);
}

TEST(FloristMistakes, GlobalAdaptersThatIncludeTheScaleAreScaledAgain) {
  auto world = tall("florist", "mode = \"code\"\ntau = 1.0");
  world.rank = 2, world.alpha = 6;
  const auto x = random_update(26, 2, 3), y = random_update(27, 2, 3);
  const auto next = world.aggregate({x, y});
  const auto right = product(next.global.adapters.at(kSite));
  expect_close(right, (product(x) + product(y)) / 2, 1e-5);
  expect_not_mistaken(product(world.prepared(next, world.client(0))), right, 3 * right, 1e-5);
}

// --- FlexLoRA ---

TEST(FlexLoraMistakes, TheScaleIsNotDividedOut) {
  auto world = tall("flexlora");
  world.rank = 2, world.alpha = 6;
  const auto x = random_update(31, 2, 3), y = random_update(32, 2, 3);
  const auto right = (product(x) + product(y)) / 2;
  expect_not_mistaken(product(world.prepared(world.aggregate({x, y}), world.client(0))), right, 3 * right, 1e-5);
}

TEST(FlexLoraMistakes, TheUpdateIsAddedToThePreviousOneThatItContains) {
  const auto world = tall("flexlora");
  const auto x = random_update(33, 1), y = random_update(34, 1);
  const auto first = world.aggregate({x, x}), second = world.aggregate(first, {y, y});
  expect_not_mistaken(change(second), product(y), product(x) + product(y), 1e-5);
}

TEST(FlexLoraMistakes, EveryClientGetsTheLastClientsFactors) {
  for (const std::string name : {"flexlora", "hetlora"}) {
    auto world = tall(name);
    world.rank = 2;
    const auto next = world.aggregate({random_update(35, 2), random_update(36, 1)});
    const auto sent = [&](int64_t rank) {
      return world.method->broadcast(next, {.id = 10 + rank, .rank = rank}, world.round()).adapters.at(kSite);
    };
    const auto wide = sent(2), narrow = sent(1);
    EXPECT_EQ(wide.rank(), 2) << name;
    EXPECT_EQ(narrow.rank(), 1) << name;
    expect_close(wide.a.narrow(0, 0, 1), narrow.a);
  }
}

// A side of 2 with a rank of 3: the smaller side of a factor is not its rank.
TEST(FlexLoraMistakes, TheRankIsTheSmallerSide) {
  auto world = tall("flexlora");
  world.rank = 4, world.alpha = 4;
  const auto x = random_update(37, 4), y = random_update(38, 3);
  const auto next = world.aggregate({x, y});
  const auto narrow = world.prepared(next, {.id = 9, .rank = 3});
  EXPECT_EQ(std::min(narrow.a.size(0), narrow.a.size(1)), 2);
  EXPECT_EQ(narrow.rank(), 3);
  EXPECT_EQ(world.prepared(next, world.client(0)).rank(), 4);
  expect_close(product(narrow), (product(x) + product(y)) / 2, 1e-5);
}

TEST(FlexLoraMistakes, ClientsOfUnequalRankBeginWithUnequalFactors) {
  for (const std::string name : {"flexlora", "hetlora"}) {
    auto world = tall(name);
    world.rank = 4, world.alpha = 4;
    const auto begun = world.method->initialize(world.server());
    const auto wide = world.prepared(begun, {.id = 0, .rank = 4}), narrow = world.prepared(begun, {.id = 1, .rank = 2});
    const auto shared = wide.a.narrow(0, 0, 2);
    expect_close(narrow.a * (narrow.a[0][0] / shared[0][0]).reciprocal(), shared);
    EXPECT_TRUE(narrow.b.eq(0).all().item<bool>()) << name;
  }
}

// Nobody trains. Directions beyond a client's rank are missing in its upload, and nothing restores them.
TEST(FlexLoraMistakes, DirectionsBeyondAClientsRankAreRestored) {
  auto world = tall("flexlora");
  world.rank = 2, world.alpha = 2, world.weights = {.25, .75};
  const auto x = random_update(39, 2);
  const auto state = world.aggregate({x, x});
  const auto wide = world.prepared(state, {.id = 0, .rank = 2}), narrow = world.prepared(state, {.id = 1, .rank = 1});
  expect_not_mistaken(change(world.aggregate(state, {wide, narrow})), .25 * product(wide) + .75 * product(narrow),
                      product(x), 1e-5);
}

// --- HetLoRA ---

/// Returns the rank that a client of `rank` sends after its tail has shrunk.
int64_t rank_after_pruning(int64_t rank) {
  auto world = tall("hetlora");
  world.rank = rank, world.alpha = static_cast<double>(rank);
  const auto state = world.aggregate({random_update(41, rank), random_update(42, rank)});
  const auto client = world.client(0);
  const auto download = world.method->broadcast(state, client, world.round());
  const auto view = world.view(client, state.common);
  auto setup = world.method->prepare(download, view);
  for (auto& [site, factors] : setup.adapters) factors.b.mul_(.5);
  return world.method->upload(download, setup, {}, view).adapters.at(kSite).rank();
}

// round(0.99 r) is r up to 50, which leaves no tail to regularise or prune.
TEST(HetLoraMistakes, TheTailBeginsAtTheRoundedRank) {
  for (const auto& [rank, kept] : {std::pair<int64_t, int64_t>{6, 5}, {8, 7}, {12, 11}, {20, 19}}) {
    EXPECT_EQ(std::llround(.99 * static_cast<double>(rank)), rank);
    EXPECT_EQ(rank_after_pruning(rank), kept);
  }
}

TEST(HetLoraMistakes, TheAggregateIsSentUnderUnusedNames) {
  auto world = tall("hetlora");
  world.rank = 2, world.alpha = 2;
  const auto x = random_update(43, 2), y = random_update(44, 2);
  const auto begun = world.method->initialize(world.server()), next = world.aggregate(begun, {x, y});
  expect_not_mistaken(product(world.prepared(next, world.client(0))), change(next),
                      product(world.prepared(begun, world.client(0))));
}

TEST(HetLoraMistakes, ClientsAreWeightedByTheirData) {
  OneSite world("hetlora");
  world.weights = {.9, .1};
  const auto next = world.aggregate({first_update(), second_update()});
  expect_not_mistaken(next.global.adapters.at(kSite).b, matrix({{.41421356}, {.58578644}}), matrix({{.9}, {.1}}));
}

// Four clients have equal norms, and one of them has a second component. The product keeps 1/16 of it, not 1/4 and not
// all.
TEST(HetLoraMistakes, TheDilutionOfTailsIsRepaired) {
  OneSite world("hetlora");
  world.rank = 2, world.alpha = 2, world.weights = {.25, .25, .25, .25};
  const lora::LoraFactors head{.a = matrix({{1, 0}}), .b = matrix({{1}, {0}})};
  const lora::LoraFactors tail{.a = matrix({{0, 0}, {0, 1}}), .b = matrix({{0, 0}, {0, 1}})};
  const auto diluted = change(world.aggregate({head, head, head, tail}));
  expect_not_mistaken(diluted, matrix({{9.0 / 16, 0}, {0, 1.0 / 16}}), matrix({{.75, 0}, {0, .25}}));
}

TEST(HetLoraMistakes, RawFactorsOfUnequalScaleAreAveraged) {
  OneSite world("hetlora");
  auto scaled = first_update();
  scaled.a = scaled.a / 2, scaled.b = scaled.b / 2, scaled.scaling = 4;
  const auto right = change(world.aggregate({first_update(), second_update()}));
  const auto raw_a = .41421356 * scaled.a + .58578644 * second_update().a;
  const auto raw_b = .41421356 * scaled.b + .58578644 * second_update().b;
  expect_not_mistaken(change(world.aggregate({scaled, second_update()})), right, at::matmul(raw_b, raw_a));
}

// --- FFA-LoRA ---

TEST(FfaLoraMistakes, EveryClientDrawsItsOwnA) {
  auto world = tall("ffa-lora");
  const auto begun = world.method->initialize(world.server());
  const auto first = world.prepared(begun, world.client(0)), other = world.prepared(begun, world.client(1));
  EXPECT_TRUE(first.a.equal(other.a));
  const lora::LoraFactors x{.b = random_update(51, 1).b}, y{.b = random_update(52, 1).b};
  const auto own = random_update(53, 1).a;
  const auto right = at::matmul((x.b + y.b) / 2, first.a);
  expect_not_mistaken(change(world.aggregate(begun, {x, y})), right,
                      (at::matmul(x.b, first.a) + at::matmul(y.b, own)) / 2);
}

// A drawn from N(0, 0.02), as in one program, changes the step size of B.
TEST(FfaLoraMistakes, AIsSmall) {
  OneSite world("ffa-lora");
  world.rank = 20;
  world.sites.at(kSite).in = 300;
  const auto a = world.method->initialize(world.server()).common.fixed.at(kSite).a;
  EXPECT_NEAR(a.norm(2, 1).mean().item<double>(), std::sqrt(1.0 / 3), .02);
  EXPECT_GT(std::sqrt(1.0 / 3) - .02 * std::sqrt(300.0), .1);
}

TEST(FfaLoraMistakes, ModulesOfOneShapeShareOneDraw) {
  OneSite world("ffa-lora");
  world.sites = {{"a.q_proj", {.experts = 0, .in = 5, .out = 3, .moe_layer = {}}},
                 {"b.q_proj", {.experts = 0, .in = 5, .out = 3, .moe_layer = {}}},
                 {"experts.up_proj", {.experts = 2, .in = 5, .out = 3, .moe_layer = kLayer}}};
  const auto fixed = world.method->initialize(world.server()).common.fixed;
  EXPECT_FALSE(fixed.at("a.q_proj").a.equal(fixed.at("b.q_proj").a));
  EXPECT_FALSE(fixed.at("experts.up_proj").a[0].equal(fixed.at("experts.up_proj").a[1]));
}

// --- Fed-SB ---

methods::ServerState fed_sb_start(OneSite& world, const at::Tensor& gradient, int64_t rank) {
  world.rank = rank, world.alpha = static_cast<double>(rank);
  world.gradient_sum = [gradient](const std::string&, const methods::GradientSample&) { return gradient; };
  return world.method->initialize(world.server());
}

// At full rank the start is -lr sign(g).
TEST(FedSbMistakes, TheStartIsThatOfTheTransposedGradient) {
  OneSite world("fed-sb");
  const auto g = matrix({{1, 2}, {-3, 4}});
  expect_not_mistaken(change(fed_sb_start(world, g, 2)), -.1 * g.sign(), -.1 * g.t().sign());
}

TEST(FedSbMistakes, TheFirstStepGoesUphill) {
  OneSite world("fed-sb");
  const auto g = matrix({{1, -2}, {-3, 4}});
  expect_not_mistaken(change(fed_sb_start(world, g, 2)), -.1 * g.sign(), .1 * g.sign());
}

TEST(FedSbMistakes, CoresOfEarlierRoundsStayInTheMean) {
  OneSite world("fed-sb");
  const auto begun = fed_sb_start(world, matrix({{1, 1}, {1, 1}}), 1);
  const auto core = [](double value) { return lora::LoraFactors{.core = matrix({{value}})}; };
  const auto first = world.aggregate(begun, {core(1), core(3)}), second = world.aggregate(first, {core(5), core(7)});
  expect_not_mistaken(second.global.adapters.at(kSite).core, matrix({{6}}), matrix({{(1. + 3 + 5 + 7) / 4}}));
}

TEST(FedSbMistakes, CoresAreWeightedEqually) {
  OneSite world("fed-sb");
  world.weights = {.25, .75};
  const auto begun = fed_sb_start(world, matrix({{1, 1}, {1, 1}}), 1);
  const auto next = world.aggregate(begun, {{.core = matrix({{1}})}, {.core = matrix({{3}})}});
  expect_not_mistaken(next.global.adapters.at(kSite).core, matrix({{2.5}}), matrix({{2}}));
}

TEST(FedSbMistakes, TheBasisIsMadeAgainAfterARound) {
  OneSite world("fed-sb");
  const auto begun = fed_sb_start(world, matrix({{1, -2}, {3, 4}}), 2);
  const auto& fixed = begun.common.fixed.at(kSite);
  const auto next = world.aggregate(begun, {{.core = at::eye(2)}, {.core = at::eye(2)}});
  const auto trained = world.prepared(next, world.client(1));
  EXPECT_TRUE(trained.a.equal(fixed.a));
  EXPECT_TRUE(trained.b.equal(fixed.b));
}

// The SVD of zeros has an arbitrary basis. A nonzero core would change an expert that no token reached.
TEST(FedSbMistakes, AnExpertWithoutTokensGetsTheBasisOfZeros) {
  OneSite world("fed-sb");
  world.sites = {{kSite, {.experts = 3, .in = 5, .out = 4, .moe_layer = kLayer}}};
  at::manual_seed(61);
  auto gradient = at::randn({3, 4, 5});
  gradient.narrow(0, 1, 2).zero_();
  const auto state = fed_sb_start(world, gradient, 2);
  const auto& fixed = state.common.fixed.at(kSite);
  EXPECT_GT(state.global.adapters.at(kSite).core[0].abs().max().item<double>(), 0);
  EXPECT_EQ(state.global.adapters.at(kSite).core.narrow(0, 1, 2).abs().max().item<double>(), 0);
  for (int64_t e = 0; e < 3; ++e) {
    expect_close(at::matmul(fixed.b[e].t(), fixed.b[e]), at::eye(2));
    expect_close(at::matmul(fixed.a[e], fixed.a[e].t()), at::eye(2));
  }
  EXPECT_FALSE(fixed.b[1].equal(fixed.b[2])) << "idle experts share one basis";
}

}  // namespace
}  // namespace evenkeel
