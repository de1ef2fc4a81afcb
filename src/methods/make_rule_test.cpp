#include "methods/make_rule.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/testing.h"
#include "lora/fixed_point.h"
#include "methods/method_registry.h"
#include "methods/rules.h"

namespace evenkeel::methods {
namespace {

/// Parts of [2, 3] values, one number per client in every place.
Parts of_numbers(const std::vector<double>& numbers, std::vector<double> weights = {}) {
  Parts parts{.values = {}, .weights = {}, .weights_E = {}, .before = {}, .who = [](size_t i) {
                return concat("q_proj of client ", i);
              }};
  for (const double number : numbers) parts.values.push_back(at::full({2, 3}, number, at::kFloat));
  if (weights.empty()) weights.assign(numbers.size(), 1.0 / static_cast<double>(numbers.size()));
  parts.weights = std::move(weights);
  return parts;
}

float value_of(const at::Tensor& result) {
  EXPECT_EQ(result.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(result.scalar_type(), at::kFloat);
  EXPECT_TRUE(result.eq(result[0][0]).all().item<bool>());
  return result[1][2].item<float>();
}

TEST(TrimmedMean, LeavesOutTheSmallestAndTheLargestAndWeighsTheRest) {
  EXPECT_FLOAT_EQ(value_of(trimmed_mean_rule(1)->combine(of_numbers({9e5, 1, 2, 6, -30}))), 3);
  EXPECT_FLOAT_EQ(value_of(trimmed_mean_rule(1)->combine(of_numbers({9e5, 1, 2, 6, -30}, {0.1, 0.1, 0.3, 0.1, 0.4}))),
                  static_cast<float>((0.1 * 1 + 0.3 * 2 + 0.1 * 6) / 0.5));
  EXPECT_FLOAT_EQ(value_of(trimmed_mean_rule(2)->combine(of_numbers({9e5, 1, 2, 6, -30}))), 2);
}

TEST(TrimmedMean, OfNoneIsTheWeightedMean) {
  const auto parts = of_numbers({4, -1, 2.5}, {0.5, 0.2, 0.3});
  EXPECT_FLOAT_EQ(value_of(trimmed_mean_rule(0)->combine(parts)), 0.5 * 4 - 0.2 + 0.3 * 2.5);
  EXPECT_THROW(trimmed_mean_rule(2)->combine(of_numbers({1, 2, 3, 4})), Error);
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_FLOAT_EQ(value_of(median_rule()->combine(of_numbers({9e5, 1, 2}))), 2);
  EXPECT_FLOAT_EQ(value_of(median_rule()->combine(of_numbers({9e5, 1, 2, -7}))), 1.5);
  EXPECT_FLOAT_EQ(value_of(median_rule()->combine(of_numbers({5}))), 5);
  EXPECT_FLOAT_EQ(value_of(median_rule()->combine(of_numbers({1, 2, 3}, {0.98, 0.01, 0.01}))), 2)
      << "weights do not count";
}

/// The reference: sorts whole tensors along the clients, in float64.
at::Tensor sorted_reference(const Parts& parts, int64_t trimmed) {
  const auto stacked = at::stack(parts.values).to(at::kDouble);
  const auto [values, order] = stacked.sort(0);
  const auto weights = at::tensor(parts.weights, at::kDouble).index({order.flatten()}).view(order.sizes());
  const int64_t kept = stacked.size(0) - 2 * trimmed;
  const auto v = values.narrow(0, trimmed, kept), w = weights.narrow(0, trimmed, kept);
  return ((v * w).sum(0) / w.sum(0)).to(at::kFloat);
}

TEST(SortedValues, EqualAReferenceInFloat64ForEveryDtypeAndAnyThreads) {
  at::manual_seed(5);
  Parts parts = of_numbers(std::vector<double>(7, 0));
  parts.weights = {0.05, 0.1, 0.15, 0.2, 0.25, 0.2, 0.05};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (auto& value : parts.values) value = at::randn({3, 70, 61}).to(type);
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const auto alone = trimmed_mean_rule(2)->combine(parts);
    at::set_num_threads(3);
    EXPECT_TRUE(trimmed_mean_rule(2)->combine(parts).equal(alone));
    at::set_num_threads(threads);
    if (type == at::kFloat) {  // values of 16 bits have ties, whose order the reference leaves open
      EXPECT_TRUE(at::allclose(alone, sorted_reference(parts, 2), 1e-6, 1e-7));
    }
    EXPECT_TRUE(median_rule()->combine(parts).equal(
        std::get<0>(at::stack(parts.values).to(at::kFloat).median(0))));  // of an odd number
  }
}

TEST(SortedValues, DoNotDependOnTheOrderOfTheClients) {
  at::manual_seed(6);
  Parts parts = of_numbers(std::vector<double>(5, 0), {0.1, 0.3, 0.2, 0.25, 0.15});
  for (auto& value : parts.values) value = at::randn({2, 3}).round();  // with equal values
  const auto forth = trimmed_mean_rule(1)->combine(parts);
  std::reverse(parts.values.begin(), parts.values.end());
  std::reverse(parts.weights.begin(), parts.weights.end());
  EXPECT_TRUE(trimmed_mean_rule(1)->combine(parts).equal(forth));
}

TEST(SortedValues, NameTheOwnerOfAValueThatIsNotFinite) {
  for (const auto& rule : {trimmed_mean_rule(1), median_rule()}) {
    auto parts = of_numbers({1, 2, 3});
    parts.values[2][1][0] = NAN;
    const auto said = testing::refusal([&] { rule->combine(parts); });
    EXPECT_NE(said.find("q_proj of client 2"), std::string::npos) << said;
    parts.values[2] = at::ones({3, 2});
    EXPECT_NE(testing::refusal([&] { rule->combine(parts); }).find("client 2 is"), std::string::npos);
  }
}

TEST(ClippedMean, CutsUpdatesToTheMedianNorm) {
  auto parts = of_numbers({12, 13, 110}, {0.5, 0.25, 0.25});
  parts.before = at::full({2, 3}, 10.0f);
  const std::vector<double> norms{2, 3, 100};  // the third is cut to three hundredths
  EXPECT_FLOAT_EQ(value_of(clipped_mean_rule(norms)->combine(parts)), 10 + 0.5 * 2 + 0.25 * 3 + 0.25 * 3);
}

TEST(ClippedMean, WithoutACutIsTheMeanToTheBit) {
  at::manual_seed(7);
  auto parts = of_numbers({0, 0, 0}, {0.2, 0.3, 0.5});
  for (auto& value : parts.values) value = at::randn({2, 3});
  parts.before = at::randn({2, 3});
  EXPECT_TRUE(clipped_mean_rule(std::vector<double>{4, 4, 4})
                  ->combine(parts)
                  .equal(lora::weighted_mean(parts.values, parts.weights)));
}

TEST(ClippedMean, OfExpertsKeepsTheirWeights) {
  Parts parts = of_numbers({});
  for (const double number : {1.0, 2.0, 100.0}) parts.values.push_back(at::full({2, 3, 1}, number, at::kFloat));
  parts.weights = {0.2, 0.3, 0.5};
  parts.before = at::zeros({2, 3, 1});
  parts.weights_E = {at::tensor({0.5, 0.0}, at::kDouble), at::tensor({0.25, 0.0}, at::kDouble),
                     at::tensor({0.25, 1.0}, at::kDouble)};
  const auto result = clipped_mean_rule(std::vector<double>{1, 2, 100})->combine(parts);
  EXPECT_FLOAT_EQ(result[0][1][0].item<float>(), 0.5 * 1 + 0.25 * 2 + 0.25 * 2);
  EXPECT_FLOAT_EQ(result[1][2][0].item<float>(), 2) << "the only client with this expert, cut";
}

TEST(Krum, ChoosesTheUploadClosestToItsNeighbours) {
  // Points on a line at 0, 1, 2.5, 100, 101: with f = 1 each has its two closest others counted.
  const std::vector<double> at{0, 1, 2.5, 100, 101};
  std::vector<std::vector<double>> distances(5, std::vector<double>(5));
  for (size_t i = 0; i < 5; ++i)
    for (size_t j = 0; j < 5; ++j) distances[i][j] = (at[i] - at[j]) * (at[i] - at[j]);
  EXPECT_EQ(krum_choice(distances, 1), 1u);  // 1 + 2.25; of the first 1 + 6.25, of the third 2.25 + 6.25
  EXPECT_FLOAT_EQ(value_of(krum_rule(2)->combine(of_numbers({5, 6, 7}))), 7);
}

ClientUpdate update_of(int64_t client, double value) {
  ClientUpdate update{.client = {.id = client, .examples = 4}, .payload = {}, .steps = 2};
  update.payload.adapters["site"] = {.a = at::full({2, 5}, value, at::kFloat),
                                     .b = at::full({3, 2}, value, at::kFloat)};
  return update;
}

lora::Payload sent(double value) { return update_of(0, value).payload; }

TEST(MakeRule, ReadsNormsAndDistancesOfAllFactors) {
  std::vector<ClientUpdate> updates;
  for (const double value : {1.0, 1.1, 0.9, 1.2, -30.0}) updates.push_back(update_of(std::ssize(updates), value));
  const auto mean = [&](const AggregationOptions& options) {
    const auto before = sent(1);
    const auto rule = make_rule(options, updates, before, 5);
    const Uploads uploads(updates, false, {rule.get(), &before});
    return uploads.mean("site", &lora::LoraFactors::b, std::vector<double>(5, 0.2))[2][1].item<float>();
  };
  EXPECT_FLOAT_EQ(mean({.rule = AggregationRule::kMean}), static_cast<float>((1 + 1.1 + 0.9 + 1.2 - 30) / 5));
  EXPECT_FLOAT_EQ(mean({.rule = AggregationRule::kMedian}), 1);
  EXPECT_FLOAT_EQ(mean({.rule = AggregationRule::kTrimmedMean, .trim = 0.2}), 1);
  EXPECT_NEAR(mean({.rule = AggregationRule::kClippedMean}), 1 + 0.2 * (0 + 0.1 - 0.1 + 0.1 - 0.1), 1e-6);
  EXPECT_FLOAT_EQ(mean({.rule = AggregationRule::kKrum, .byzantine = 1}), 1);
  updates.resize(4);
  const auto said = testing::refusal([&] { mean({.rule = AggregationRule::kKrum, .byzantine = 1}); });
  EXPECT_NE(said.find("5 uploads or more, 4 are left"), std::string::npos) << said;
}

TEST(MakeRule, TheTrimmedMeanWithstandsAsManyUploadsWhereClientsAreLost) {
  std::vector<ClientUpdate> updates;
  for (const double value : {1.0, 1.1, 0.9, -30.0}) updates.push_back(update_of(std::ssize(updates), value));
  const auto before = sent(1);
  const auto mean = [&](double trim, int64_t drawn) {
    const auto rule = make_rule({.rule = AggregationRule::kTrimmedMean, .trim = trim}, updates, before, drawn);
    const Uploads uploads(updates, false, {rule.get(), &before});
    const std::vector<double> weights(updates.size(), 1.0 / static_cast<double>(updates.size()));
    return uploads.mean("site", &lora::LoraFactors::b, weights)[2][1].item<float>();
  };
  EXPECT_FLOAT_EQ(mean(0.2, 5), 0.95f) << "of four uploads one is left out at either end";
  const auto none = testing::refusal([&] { mean(0.2, 4); });
  EXPECT_NE(none.find("trimmed_mean with trim = 0.2 leaves out none of the 4 clients"), std::string::npos) << none;
  const auto few = testing::refusal([&] { mean(0.4, 5); });
  EXPECT_NE(few.find("trimmed_mean with trim = 0.4 of 5 drawn clients takes 5 uploads or more, 4 are left"),
            std::string::npos)
      << few;
}

/// An update whose distances to others are in all tensors: of 16 bits, transposed, a core, an extra.
ClientUpdate mixed_update_of(int64_t client, double value) {
  auto update = update_of(client, value);
  auto& factors = update.payload.adapters["site"];
  factors.a = at::full({5, 2}, value, at::kFloat).t();
  factors.b = factors.b.to(at::kBFloat16);
  factors.core = at::full({2, 2}, value, at::kDouble);
  update.payload.extras["layer.phi"] = at::full({4}, value, at::kFloat);
  update.payload.extras["layer.counts"] = at::full({4}, 1000 * client, at::kInt);
  return update;
}

TEST(MakeRule, KrumTakesAllTensorsOfAnyTypeButIntegers) {
  const AggregationOptions krum{.rule = AggregationRule::kKrum, .byzantine = 1};
  const std::vector<double> weights(5, 0.2);
  const auto before = mixed_update_of(0, 1).payload;
  const std::vector<std::function<void(ClientUpdate&)>> spoils{
      [](ClientUpdate& one) { one.payload.adapters["site"].a.fill_(9); },
      [](ClientUpdate& one) { one.payload.adapters["site"].b.fill_(9); },
      [](ClientUpdate& one) { one.payload.adapters["site"].core.fill_(9); },
      [](ClientUpdate& one) { one.payload.extras["layer.phi"].fill_(9); },
  };
  for (size_t i = 0; i < spoils.size(); ++i) {
    // Clients 2 to 4 are equal. If the spoiled tensor did not count, client 0 would equal them and be chosen.
    std::vector<ClientUpdate> updates;
    for (int64_t client = 0; client < 5; ++client) updates.push_back(mixed_update_of(client, 1));
    for (size_t far : {0, 1}) spoils[i](updates[far]);
    updates[1].payload.adapters["site"].b.mul_(2);
    const auto rule = make_rule(krum, updates, before, 5);
    Parts parts = of_numbers({0, 1, 2, 3, 4});
    EXPECT_FLOAT_EQ(value_of(rule->combine(parts)), 2) << "tensor " << i;
  }
}

TEST(CheckRule, RefusesMethodsAndNumbersThatARuleDoesNotSuit) {
  const auto table = config::Table::parse("", "unit.toml");
  const auto said = [&](const AggregationOptions& options, std::string_view method, int64_t drawn) {
    return testing::refusal([&] { check_rule(options, find_method(method), drawn, table); });
  };
  using enum AggregationRule;
  for (const auto rule : {kTrimmedMean, kMedian, kClippedMean, kKrum}) {
    for (const auto* method : {"fedit", "ffa-lora", "fed-sb", "ub-smoe", "smoe-llb"})
      EXPECT_EQ(said({.rule = rule}, method, 5), "no error") << method;
    for (const auto* method : {"flora", "flexlora", "florist", "hetlora", "fedex-lora"})
      EXPECT_NE(said({.rule = rule}, method, 5).find(concat("with method ", method)), std::string::npos) << method;
    EXPECT_EQ(said({.rule = rule}, "a3smoe", 5) == "no error", rule == kClippedMean);
  }
  EXPECT_EQ(said({.rule = kMean}, "flora", 1), "no error");
  EXPECT_NE(said({.rule = kKrum, .byzantine = 2}, "fedit", 6).find("2 f + 3 <= 6"), std::string::npos);
  EXPECT_EQ(said({.rule = kKrum, .byzantine = 2}, "fedit", 7), "no error");
  EXPECT_NE(said({.rule = kTrimmedMean, .trim = 0.1}, "fedit", 9).find("one of the 9 clients"), std::string::npos);
  EXPECT_EQ(said({.rule = kTrimmedMean, .trim = 0.1}, "fedit", 10), "no error");
  EXPECT_EQ((AggregationOptions{.trim = 0.3}.trimmed(10)), 3) << "0.3 * 10 is below 3 in floating point";
}

}  // namespace
}  // namespace evenkeel::methods
