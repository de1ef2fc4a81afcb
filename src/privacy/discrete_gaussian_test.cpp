// The vectors were computed by a Python reference with unbounded integers.
#include "privacy/discrete_gaussian.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/plain/error.h"
#include "crypto/testing.h"

namespace evenkeel::privacy {
namespace {

using testing::secret_of;

struct Draws {
  int64_t variance;
  std::vector<int64_t> draws;
  int64_t bytes;
};

TEST(DiscreteGaussian, DrawsThePublishedIntegers) {
  const std::vector<Draws> cases = {
      {1, {0, 0, 1, 1, -1, -2, 0, 1, 0, 0, 0, -1, 0, 0, -1, 1, 2, 1, -1, -2, 0, 1, 1, 0}, 456},
      {6, {-1, 2, 1, -4, 1, 0, 4, 3, 3, 1, 0, 0, -1, 1, -5, -2, -1, 1, 2, -1, 4, 0, 2, -1}, 395},
      {int64_t{1} << 42,
       {628262, 2295882, 617148, 1211940, 2135191, -2410140, -1206366, 292138, -607724, -1207149, 511868, 1690601},
       769}};
  for (const auto& of : cases) {
    DiscreteGaussian noise(secret_of("evenkeel dp vector 1"));
    for (const int64_t expected : of.draws) EXPECT_EQ(noise.draw(of.variance), expected);
    EXPECT_EQ(noise.bytes_used(), of.bytes) << of.variance;
  }
}

/// Returns the probabilities at -most .. most, the rest in both ends.
std::map<int64_t, double> probabilities(double variance, int64_t most) {
  std::map<int64_t, double> result;
  double all = 0;
  for (int64_t k = -400; k <= 400; ++k) {
    const double weight = std::exp(-static_cast<double>(k * k) / (2 * variance));
    result[std::clamp(k, -most, most)] += weight, all += weight;
  }
  for (auto& [k, weight] : result) weight /= all;
  return result;
}

TEST(DiscreteGaussian, HasTheProbabilitiesOfItsDefinition) {
  constexpr int64_t kDraws = 1'000'000, kMost = 9;
  const auto expected = probabilities(6, kMost);
  EXPECT_NEAR(expected.at(0), 0.1628675040, 1e-10);
  EXPECT_NEAR(expected.at(5), 0.0202793612, 1e-10);
  std::vector<int64_t> drawn(kDraws, 0);
  add_discrete_gaussian(drawn, 6, secret_of("chi square"));
  std::map<int64_t, int64_t> counts;
  for (const int64_t value : drawn) ++counts[std::clamp(value, -kMost, kMost)];
  double chi_square = 0;
  for (const auto& [k, probability] : expected)
    chi_square += std::pow(static_cast<double>(counts[k]) - kDraws * probability, 2) / (kDraws * probability);
  EXPECT_LT(chi_square, 60.5);  // level 1e-6 with 18 degrees of freedom
}

TEST(DiscreteGaussian, LargeDrawsHaveTheVarianceAndNoMean) {
  constexpr int64_t kDraws = 200'000;
  std::vector<int64_t> drawn(kDraws, 0);
  add_discrete_gaussian(drawn, kMostVariance, secret_of("largest variance"));
  double sum = 0, squares = 0;
  for (const int64_t value : drawn) {
    const double scaled = std::ldexp(static_cast<double>(value), -28);
    sum += scaled, squares += scaled * scaled;
  }
  EXPECT_NEAR(sum / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
}

TEST(DiscreteGaussian, NoiseDoesNotDependOnThreadsAndStartsAnewPerBlock) {
  const auto key = secret_of("threads");
  std::vector<int64_t> one(150'001, 7), two = one;
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  add_discrete_gaussian(one, 1000, key);
  at::set_num_threads(2);
  add_discrete_gaussian(two, 1000, key);
  at::set_num_threads(before);
  EXPECT_EQ(one, two);
  DiscreteGaussian third(key, 2);
  EXPECT_EQ(one[131'072], 7 + third.draw(1000));
}

TEST(DiscreteGaussian, RefusesVariancesThatItsArithmeticCannotHold) {
  std::vector<int64_t> values(3, 0);
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, kMostVariance + 1})
    EXPECT_THROW(add_discrete_gaussian(values, bad, secret_of("bad")), Error) << bad;
}

}  // namespace
}  // namespace evenkeel::privacy
