#include "lora/fixed_point.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "lora/testing.h"

namespace evenkeel::lora {
namespace {

at::Tensor normal(at::IntArrayRef sizes, uint64_t key, double scale = 1) {
  auto draw = at::empty(sizes, at::kFloat);
  RandomStream stream(7, "terms", key);
  stream.fill_normal({draw.mutable_data_ptr<float>(), static_cast<size_t>(draw.numel())}, scale);
  return draw;
}

/// Returns the results of `shares` threads that act as processes, each of which has a range of `parts`.
std::vector<at::Tensor> apart(const std::vector<at::Tensor>& parts, const std::vector<double>& weights,
                              const std::vector<std::vector<size_t>>& shares) {
  testing::Meeting meeting(shares.size());
  std::vector<at::Tensor> sums(shares.size());
  std::vector<std::jthread> processes;
  for (size_t s = 0; s < shares.size(); ++s)
    processes.emplace_back([&, s] {
      const auto& own = shares[s];
      sums[s] = fixed_point_sum({.here = own.size(),
                                 .global_term_count = parts.size(),
                                 .at =
                                     [&](size_t i) {
                                       return Term{parts[own[i]], weights[own[i]]};
                                     }},
                                testing::Meeting::Seat(meeting));
    });
  processes.clear();
  return sums;
}

TEST(WeightedMean, EqualsTheSumInDoubleAndKeepsTheDtype) {
  const std::vector<at::Tensor> parts = {at::full({2, 3}, 1.0f), at::full({2, 3}, 4.0f)};
  const auto mean = weighted_mean(parts, std::vector<double>{0.25, 0.75});
  EXPECT_EQ(mean.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(mean, at::full({2, 3}, 3.25f)));
}

TEST(WeightedMean, SmallTermsAreNotLostNextToLargeOnes) {
  const std::vector<at::Tensor> parts = {at::full({1}, 1e8f), at::full({1}, 1.0f), at::full({1}, -1e8f)};
  EXPECT_EQ(weighted_mean(parts, std::vector<double>{1, 1, 1}).item<float>(), 1.0f);
}

TEST(WeightedMean, RejectsPartsOfDifferentShapes) {
  const std::vector<at::Tensor> parts = {at::zeros({2, 3}), at::zeros({3, 2})};
  EXPECT_THROW(weighted_mean(parts, std::vector<double>{0.5, 0.5}), Error);
  EXPECT_THROW(weighted_mean(parts, std::vector<double>{0.5}), Error);
  EXPECT_THROW(weighted_mean({}, {}), Error);
}

TEST(FixedPointSum, BitsDoNotDependOnTheOrderOfTerms) {
  std::vector<at::Tensor> parts;
  std::vector<double> weights;
  for (uint64_t c = 0; c < 5; ++c)
    parts.push_back(normal({70, 30}, c).to(at::kDouble)), weights.push_back(0.1 + 0.05 * double(c));
  const auto forth = weighted_mean(parts, weights);
  const auto added = [&] {
    auto sum = at::zeros_like(parts[0]);
    for (size_t c = 0; c < parts.size(); ++c) sum.add_(parts[c], weights[c]);
    return sum;
  };
  const auto doubles_forth = added();
  std::reverse(parts.begin(), parts.end()), std::reverse(weights.begin(), weights.end());
  EXPECT_TRUE(weighted_mean(parts, weights).equal(forth));
  EXPECT_FALSE(added().equal(doubles_forth));
  EXPECT_TRUE(forth.allclose(doubles_forth, 1e-12, 1e-15));
}

TEST(FixedPointSum, BitsDoNotDependOnHowTermsAreDistributed) {
  std::vector<at::Tensor> parts;
  const std::vector<double> weights = {0.4, 0.1, 0.3, 0.2};
  for (uint64_t c = 0; c < 4; ++c) parts.push_back(normal({3, 11, 5}, c, c == 2 ? 1e3 : 1e-2).to(at::kBFloat16));
  const auto together = weighted_mean(parts, weights);
  EXPECT_EQ(together.scalar_type(), at::kFloat);
  for (const auto& shares : std::vector<std::vector<std::vector<size_t>>>{
           {{0, 1, 2, 3}}, {{0, 2}, {1, 3}}, {{3, 1}, {0}, {2}}, {{1}, {}, {0, 2, 3}}, {{0}, {1}, {2}, {3}, {}}})
    for (const auto& sum : apart(parts, weights, shares)) EXPECT_TRUE(sum.equal(together)) << shares.size();
}

TEST(FixedPointSum, ErrorIsBoundedAndNothingOverflows) {
  for (const double scale : {1e-250, 1e-30, 1.0, 1e30, 1e306}) {
    const std::vector<at::Tensor> parts(7, at::full({3}, scale, at::kDouble));
    EXPECT_NEAR(weighted_mean(parts, std::vector<double>(7, 1.0))[0].item<double>() / scale, 7, 1e-14) << scale;
  }
  EXPECT_TRUE(
      weighted_mean(std::vector<at::Tensor>(2, at::zeros({2, 3})), std::vector<double>{1, 1}).equal(at::zeros({2, 3})));
}

TEST(FixedPointSum, NamesTheTermThatIsNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY})
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      auto values = at::ones({4, 9}).to(type);
      values[3][8] = bad;
      try {
        fixed_point_sum({.here = 2,
                         .global_term_count = 2,
                         .at =
                             [&](size_t i) {
                               return Term{i == 1 ? values : at::ones({4, 9}).to(type)};
                             },
                         .who = [](size_t i) { return concat("up_proj of client ", i + 3); }});
        FAIL();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), kNumeric);
        EXPECT_NE(std::string(error.what()).find("up_proj of client 4"), std::string::npos) << error.what();
      }
    }
}

// Uses a stack's factors of 9 clients. The largest value comes last, so blocks are summed before it is known.
TEST(FixedPointSum, ScaleCoversTheLargestValueInAnyBlock) {
  std::vector<at::Tensor> parts;
  for (uint64_t c = 0; c < 9; ++c) parts.push_back(normal({5, 90, 701}, c).to(at::kBFloat16));
  const std::vector<double> weights(9, 1.0 / 9);
  for (const double largest : {1.0, 3e4, 1e30}) {
    parts[4][4][89][700] = largest;
    std::vector<int> asked(9);
    const auto sum = fixed_point_sum({.here = 9, .global_term_count = 9, .at = [&](size_t i) {
                                        ++asked[i];
                                        return Term{parts[i], weights[i]};
                                      }});
    EXPECT_EQ(asked, std::vector<int>(9, 1));
    // Computes the expected scale, 2^62 / (16 * 2^above), from its definition.
    const double scale = std::ldexp(1.0, 62 - 4 - (std::ilogb(parts[4][4][89][700].item<double>() / 9) + 1));
    auto expected = at::zeros({5, 90, 701}, at::kLong);
    for (const auto& part : parts) expected += (part.to(at::kDouble) * (scale / 9)).round().to(at::kLong);
    const bool seen = std::abs(largest) > 10;  // otherwise another value is the largest
    if (seen) {
      EXPECT_TRUE(sum.equal((expected.to(at::kDouble) / scale).to(at::kFloat))) << largest;
    }
    EXPECT_TRUE(sum.equal(apart(parts, weights, {{0, 1, 2, 3, 5, 6, 7, 8}, {4}})[0])) << largest;
  }
}

TEST(FixedPointSum, WeightsPerMatrixEqualMultipliedTerms) {
  const auto x = normal({4, 3, 50}, 1), y = normal({4, 3, 50}, 2);
  const auto v_E = at::tensor({0.3, 0.0, 0.9, 0.2}, at::kDouble), w_E = at::tensor({0.7, 1.0, 0.1, 0.8}, at::kDouble);
  const std::vector<Term> given{{.values = x, .weights_E = v_E}, {.values = y, .weights_E = w_E}};
  const std::vector<at::Tensor> multiplied{x.to(at::kDouble) * v_E.view({4, 1, 1}),
                                           y.to(at::kDouble) * w_E.view({4, 1, 1})};
  const auto sum = fixed_point_sum({.here = 2, .global_term_count = 2, .at = [&](size_t i) { return given[i]; }});
  EXPECT_TRUE(sum.equal(weighted_mean(multiplied, std::vector<double>{1, 1}).to(at::kFloat)));
  EXPECT_THROW(
      fixed_point_sum({.here = 1,
                       .global_term_count = 1,
                       .at = [&](size_t) { return Term{.values = x, .weights_E = at::ones({3}, at::kDouble)}; }}),
      Error);
}

// 16-bit and 32-bit values are summed in registers if the processor can. 64-bit values are summed term by term.
TEST(FixedPointSum, SumsOf16BitValuesEqualThoseIn32And64Bits) {
  std::vector<at::Tensor> narrow, wide, widest;
  std::vector<double> weights;
  for (uint64_t c = 0; c < 19; ++c) {  // more terms than are added at once
    narrow.push_back(normal({7, 4100}, c, std::exp2(double(c % 5))).to(at::kBFloat16));
    narrow.back()[6][4099 - int64_t(c)] = 1e4 * double(c);  // the scale changes late
    wide.push_back(narrow.back().to(at::kFloat));
    widest.push_back(narrow.back().to(at::kDouble));
    weights.push_back(c == 3 ? 0 : 0.3 - 0.04 * double(c));
  }
  const auto weights_E = normal({7}, 99).to(at::kDouble);
  const auto sum = [&](const std::vector<at::Tensor>& parts, bool by_matrix) {
    return fixed_point_sum({.here = parts.size(), .global_term_count = parts.size(), .at = [&, by_matrix](size_t i) {
                              return Term{parts[i], weights[i], by_matrix && i % 2 ? weights_E : at::Tensor()};
                            }});
  };
  for (const bool by_matrix : {false, true}) {
    const auto expected = sum(widest, by_matrix).to(at::kFloat);
    EXPECT_TRUE(sum(narrow, by_matrix).equal(expected));
    EXPECT_TRUE(sum(wide, by_matrix).equal(expected));
  }
  for (auto* parts : {&narrow, &wide}) {
    (*parts)[11][6][100] = -HUGE_VAL;
    EXPECT_THROW(weighted_mean(*parts, weights), Error);
    (*parts)[11][6][100] = 0, (*parts)[3][0][1] = NAN;  // terms of weight 0
    EXPECT_THROW(weighted_mean(*parts, weights), Error);
  }
}

TEST(FixedPointSum, SumsOfFullMantissasEqualThoseIn64Bits) {
  std::vector<at::Tensor> wide, widest;
  std::vector<double> weights;
  for (uint64_t c = 0; c < 18; ++c) {
    wide.push_back(normal({5, 2053}, c, std::exp2(-double(c))));
    widest.push_back(wide.back().to(at::kDouble));
    weights.push_back(0.02 + 0.007 * double(c));
  }
  EXPECT_TRUE(weighted_mean(wide, weights).equal(weighted_mean(widest, weights).to(at::kFloat)));
}

TEST(FixedPointSum, LargeSumsOfIntegersAreExact) {
  std::vector<at::Tensor> parts;  // integers, with powers of two as weights, so every sum is exact
  for (uint64_t i = 0; i < 3; ++i) parts.push_back(normal({1237, 1031}, i, 40).round_().to(at::kBFloat16));
  const auto mean = weighted_mean(parts, std::vector<double>{0.5, 0.25, 2});
  const auto exact = parts[0].to(at::kFloat) * 0.5 + parts[1].to(at::kFloat) * 0.25 + parts[2].to(at::kFloat) * 2;
  EXPECT_TRUE(at::equal(mean, exact));
}

TEST(FixedPointSum, IsUndefinedWithoutTerms) {
  EXPECT_FALSE(fixed_point_sum({.here = 1, .global_term_count = 1, .at = [](size_t) { return Term{}; }}).defined());
  EXPECT_FALSE(fixed_point_sum(Terms{}).defined());
}

}  // namespace
}  // namespace evenkeel::lora
