// Vectors computed with dp-accounting 0.6.0 (tests/parity/test_privacy.py compares with the package itself).
#include "privacy/accountant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/plain/error.h"
#include "privacy/gaussian_epsilon.h"
#include "privacy/loss_distribution.h"

namespace evenkeel::privacy {
namespace {

struct Case {
  double q, z;
  int64_t times;
  double delta, all, all_order, enforced, enforced_order, loss;
};
const std::vector<Case> kCases = {
    {1, 1, 1, 1e-5, 4.7285070672, 5.4, 4.7285070672, 5.4, 4.3771781000},
    {1, 1, 10, 1e-6, 20.5519916298, 2.6, 20.5519916298, 2.6, 19.4236564771},
    {1, 2, 100, 1e-6, 37.4292161968, 2.0, 37.4292161968, 2.0, 35.5663437160},
    {1, 0.5, 1, 1e-5, 10.7255096964, 3.3, 10.7255096964, 3.3, 9.9972561502},
    {1, 8, 50, 1e-5, 4.1056616424, 6.0, 4.1056616424, 6.0, 3.7965357293},
    {0.01, 1, 1000, 1e-6, 2.4366938030, 8, 2.4366938030, 8, 2.1245225257},
    {0.1, 1, 100, 1e-6, 8.9213916528, 3.3, 9.1242140569, 3, 8.0586084377},
    {0.1, 0.6, 30, 1e-5, 14.1186098044, 2.1, 14.3411964778, 2, 12.2003189945},
    {0.25, 1.5, 200, 1e-5, 15.9432976380, 2.5, 16.3439936886, 3, 14.4369040386},
    {0.5, 4, 100, 1e-6, 7.0253064755, 4.9, 7.0260488365, 5, 6.5415476715},
    {0.001, 0.7, 5000, 1e-7, 2.7252286186, 6.3, 2.8192592013, 6, 1.8476665776},
};

Spent spent(const Case& of, Orders orders) {
  Accountant accountant(orders);
  accountant.add({.noise = of.z, .sampling = of.q}, of.times);
  return accountant.spent(of.delta);
}

TEST(Accountant, GivesTheEpsilonsOfDpAccounting) {
  for (const auto& of : kCases) {
    SCOPED_TRACE(concat("q ", of.q, ", z ", of.z, ", T ", of.times));
    const auto all = spent(of, Orders::kAll), enforced = spent(of, Orders::kEnforced);
    EXPECT_NEAR(all.epsilon, of.all, 1e-9 * of.all);
    EXPECT_DOUBLE_EQ(all.order, of.all_order);
    EXPECT_NEAR(enforced.epsilon, of.enforced, 1e-9 * of.enforced);
    EXPECT_DOUBLE_EQ(enforced.order, of.enforced_order);
  }
}

TEST(Accountant, SingleDivergencesAreThoseOfTheSampledGaussian) {
  const Event mild{.noise = 1, .sampling = 0.01}, strong{.noise = 0.6, .sampling = 0.1};
  const std::vector<double> orders = {2, 3, 4, 8, 16};
  const std::vector<double> of_mild = {0.000171813422075, 0.000264637574585, 0.000363154048911, 0.000893643907606,
                                       3.0878507837};
  const std::vector<double> of_strong = {0.140485512466, 0.858384098728, 2.48864416023, 8.4795853275, 19.7661314564};
  for (size_t i = 0; i < orders.size(); ++i) {
    EXPECT_NEAR(renyi_divergence(mild, orders[i]), of_mild[i], 1e-9 * of_mild[i]) << orders[i];
    EXPECT_NEAR(renyi_divergence(strong, orders[i]), of_strong[i], 1e-9 * of_strong[i]) << orders[i];
  }
  EXPECT_NEAR(renyi_divergence(mild, 2.5, Orders::kAll), 0.000217772024241, 1e-9 * 0.000217772024241);
}

TEST(Accountant, FractionalOrdersOfSampledEventsAreNotEnforced) {
  EXPECT_TRUE(std::isinf(renyi_divergence({.noise = 1, .sampling = 0.01}, 2.5)));
  EXPECT_DOUBLE_EQ(renyi_divergence({.noise = 2, .sampling = 1}, 2.5), 2.5 / 8);
}

const std::vector<Releases> kMixed = {
    {{.noise = 1, .sampling = 0.1}, 30}, {{.noise = 1.5, .sampling = 0.2}, 20}, {{.noise = 8}, 5}};

TEST(Accountant, AddsUpEventsOfDifferentKinds) {
  Accountant all(Orders::kAll), enforced;
  all.add(kMixed), enforced.add(kMixed);
  EXPECT_NEAR(all.spent(1e-6).epsilon, 6.85796944194445, 1e-8);
  EXPECT_NEAR(enforced.spent(1e-6).epsilon, 6.869047921629713, 1e-8);
  EXPECT_DOUBLE_EQ(enforced.spent(1e-6).order, 4);
}

TEST(Accountant, DeltaIsTheInverseOfEpsilon) {
  Accountant accountant;
  accountant.add(kMixed);
  for (const double delta : {1e-4, 1e-6, 1e-9})
    EXPECT_NEAR(accountant.delta(accountant.spent(delta).epsilon), delta, 1e-6 * delta);
}

TEST(Accountant, WithoutAReleaseNothingIsSpent) {
  EXPECT_EQ(Accountant().spent(1e-6).epsilon, 0);
  EXPECT_EQ(Accountant().delta(1), 0);
}

TEST(Accountant, StopsBeforeTheReleaseThatWouldExceedTheBudget) {
  const Event event{.noise = 1, .sampling = 0.1};
  const Budget budget{.epsilon = 4, .delta = 1e-6};
  Accountant accountant;
  int rounds = 0;
  while (!accountant.would_exceed(event, 1, budget)) accountant.add(event), ++rounds;
  EXPECT_EQ(rounds, 9);
  EXPECT_NEAR(accountant.spent(1e-6).epsilon, 3.9972715, 1e-7);
  EXPECT_DOUBLE_EQ(accountant.spent(1e-6).order, 5);
  EXPECT_EQ(Accountant().remaining(event, budget, 1000), 9);
  EXPECT_EQ(Accountant().remaining(event, budget, 5), 5);
  EXPECT_EQ(accountant.remaining(event, budget, 1000), 0);
  accountant.add(event);
  EXPECT_NEAR(accountant.spent(1e-6).epsilon, 4.1271489, 1e-7);
  EXPECT_EQ(accountant.remaining(event, budget, 1000), 0);
}

TEST(Accountant, RefusesImpossibleEvents) {
  Accountant accountant;
  for (const Event bad :
       {Event{.noise = 0}, Event{.noise = -1}, Event{.noise = NAN}, Event{.noise = 2000},
        Event{.noise = 1, .sampling = 0}, Event{.noise = 1, .sampling = 1.5}, Event{.noise = 1, .sampling = NAN}})
    EXPECT_THROW(accountant.add(bad), Error) << bad.noise << " " << bad.sampling;
  EXPECT_THROW(accountant.add({.noise = 1}, -1), Error);
}

TEST(LeastNoise, FitsTheBudgetAndLittleLessDoesNot) {
  struct {
    double q;
    int64_t times;
    double epsilon, delta, noise;
  } const cases[] = {{1, 10, 8, 1e-5, 2.01649},
                     {0.1, 100, 8, 1e-6, 1.07008},
                     {0.01, 1000, 2, 1e-6, 1.09628},
                     {1, 1, 1, 1e-5, 4.04539}};
  for (const auto& of : cases) {
    const Budget budget{of.epsilon, of.delta};
    const double noise = least_noise(of.q, of.times, budget);
    EXPECT_NEAR(noise, of.noise, 1e-5);
    EXPECT_FALSE(Accountant().would_exceed({.noise = noise, .sampling = of.q}, of.times, budget));
    EXPECT_TRUE(Accountant().would_exceed({.noise = noise * (1 - 2e-6), .sampling = of.q}, of.times, budget));
  }
  EXPECT_NEAR(least_noise(0.1, 100, {8, 1e-6}, Accountant(Orders::kAll)), 1.05984, 1e-5);
}

TEST(LeastNoise, KeepsWhatIsLeftOfABudget) {
  const Budget budget{8, 1e-6};
  Accountant before;
  before.add({.noise = 1, .sampling = 0.1}, 30);
  const double noise = least_noise(0.2, 40, budget, before);
  EXPECT_FALSE(before.would_exceed({.noise = noise, .sampling = 0.2}, 40, budget));
  EXPECT_TRUE(before.would_exceed({.noise = noise * (1 - 2e-6), .sampling = 0.2}, 40, budget));
  EXPECT_GT(noise, least_noise(0.2, 40, budget));
}

TEST(LeastNoise, RefusesABudgetThatNoNoiseKeeps) {
  EXPECT_THROW(least_noise(1, 1'000'000'000, {0.01, 1e-9}), Error);
  EXPECT_THROW(least_noise(1, 10, {0, 1e-5}), Error);
  EXPECT_THROW(least_noise(1, 10, {1, 1}), Error);
}

TEST(LossDistribution, GivesTheEpsilonsOfDpAccounting) {
  for (const auto& of : kCases) {
    const std::vector<Releases> releases = {{{.noise = of.z, .sampling = of.q}, of.times}};
    const auto epsilon = loss_distribution_epsilon(releases, of.delta);
    ASSERT_TRUE(epsilon);
    EXPECT_NEAR(*epsilon, of.loss, 1e-6) << "q " << of.q << ", z " << of.z << ", T " << of.times;
  }
  EXPECT_NEAR(*loss_distribution_epsilon(kMixed, 1e-6), 6.157770868710802, 1e-6);
}

TEST(LossDistribution, WithoutSamplingIsTheExactGaussian) {
  EXPECT_NEAR(gaussian_epsilon(1, 1e-5), 4.3771780957, 1e-9);
  EXPECT_NEAR(gaussian_epsilon(1 / std::sqrt(10), 1e-6), 19.4236564740, 1e-9);
  EXPECT_NEAR(gaussian_epsilon(0.2, 1e-6), 35.5663437141, 1e-8);
  EXPECT_NEAR(gaussian_epsilon(0.5, 1e-5), 9.9972561464, 1e-9);
  EXPECT_NEAR(gaussian_epsilon(8 / std::sqrt(50), 1e-5), 3.7965357229, 1e-9);
  EXPECT_EQ(gaussian_epsilon(1000, 0.1), 0);
  EXPECT_EQ(loss_distribution_epsilon({}, 1e-5), 0);
}

TEST(LossDistribution, IsAbsentWhereTheGridWouldBeTooLarge) {
  const std::vector<Releases> releases = {{{.noise = 0.01, .sampling = 0.5}, 1'000'000}};
  EXPECT_EQ(loss_distribution_epsilon(releases, 1e-5), std::nullopt);
}

}  // namespace
}  // namespace evenkeel::privacy
