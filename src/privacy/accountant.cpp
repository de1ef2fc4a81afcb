#include "privacy/accountant.h"

#include <algorithm>
#include <cmath>

#include "base/plain/error.h"
#include "privacy/limits.h"

namespace evenkeel::privacy {
namespace {

constexpr double kLeastOrder = 1.01;  // the conversion loses its digits closer to 1

double epsilon_of(double divergence, double order, double delta) {
  if (delta * delta + std::expm1(-divergence) > 0) return 0;  // by the Kullback-Leibler divergence
  if (order <= kLeastOrder) return kInfinite;
  return divergence + std::log1p(-1 / order) - std::log(delta * order) / (order - 1);
}

double log_delta_of(double divergence, double order, double epsilon) {
  if (divergence == 0) return -kInfinite;
  const double by_kl = 0.5 * std::log1p(-std::exp(-divergence));
  if (order <= kLeastOrder) return by_kl;
  return std::min(by_kl, (order - 1) * (divergence - epsilon + std::log1p(-1 / order)) - std::log(order));
}

Spent least_epsilon(std::span<const double> divergences, double delta) {
  Spent least{kInfinite, 0};
  for (size_t i = 0; i < divergences.size(); ++i)
    if (const double epsilon = epsilon_of(divergences[i], renyi_orders()[i], delta); epsilon < least.epsilon)
      least = {epsilon, renyi_orders()[i]};
  return {std::max(0.0, least.epsilon), least.order};
}

std::vector<double> sum_of(std::vector<double> sums, std::span<const double> one, int64_t times) {
  if (times > 0)
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(times) * one[i];
  return sums;
}

}  // namespace

Accountant::Accountant(Orders orders) : orders_(orders), sums_(renyi_orders().size(), 0.0) {}

std::vector<double> Accountant::of_one(const Event& event) const {
  check_event(event, "privacy");
  std::vector<double> divergences;
  for (const double order : renyi_orders()) divergences.push_back(renyi_divergence(event, order, orders_));
  return divergences;
}

void Accountant::add(const Event& event, int64_t times) {
  EK_CHECK(times >= 0 && times <= kMostReleases, kConfig, "privacy: ", times, " releases, allowed: 0 to ",
           kMostReleases);
  sums_ = sum_of(std::move(sums_), of_one(event), times);
  if (times == 0) return;
  const auto same =
      std::find_if(releases_.begin(), releases_.end(), [&](const auto& one) { return one.event == event; });
  if (same == releases_.end())
    releases_.push_back({event, times});
  else
    same->times += times;
}

void Accountant::add(std::span<const Releases> releases) {
  for (const auto& some : releases) add(some.event, some.times);
}

Spent Accountant::spent(double delta) const { return releases_.empty() ? Spent{} : least_epsilon(sums_, delta); }

double Accountant::delta(double epsilon) const {
  double least = 0;  // delta is at most 1
  for (size_t i = 0; i < sums_.size(); ++i) least = std::min(least, log_delta_of(sums_[i], renyi_orders()[i], epsilon));
  return releases_.empty() ? 0 : std::exp(least);
}

bool Accountant::would_exceed(const Event& event, int64_t times, const Budget& budget) const {
  return least_epsilon(sum_of(sums_, of_one(event), times), budget.delta).epsilon > budget.epsilon;
}

int64_t Accountant::remaining(const Event& event, const Budget& budget, int64_t most) const {
  const auto one = of_one(event);
  const auto fits = [&](int64_t times) {
    return least_epsilon(sum_of(sums_, one, times), budget.delta).epsilon <= budget.epsilon;
  };
  if (fits(most)) return most;
  int64_t low = 0, high = most;  // low may not fit either, when the budget is spent already
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

double least_noise(double sampling, int64_t times, const Budget& budget, const Accountant& before) {
  constexpr double kTolerance = 1e-6;
  check_budget(budget, "privacy");
  const auto fits = [&](double noise) {
    return !before.would_exceed({.noise = noise, .sampling = sampling}, times, budget);
  };
  EK_CHECK(fits(kMostNoise), kConfig, "privacy: no noise multiplier up to ", kMostNoise, " keeps ", times,
           " releases within epsilon ", budget.epsilon, " at delta ", budget.delta,
           "; allow a larger epsilon, or fewer releases");
  double low = kLeastNoise, high = kMostNoise;
  if (fits(low)) return low;
  while (high - low > kTolerance * high / 2) {
    const double middle = std::sqrt(low * high);
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace evenkeel::privacy
