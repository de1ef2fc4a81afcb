/// \file  Sums the privacy loss of releases (sums with noise), and says whether further releases fit into a privacy
/// budget. The sum of Renyi divergences is converted to (epsilon, delta) by Canonne, Kamath and Steinke 2020,
/// Proposition 12.
/// Results equal the Python package dp-accounting's (tests/parity/test_privacy.py).
#pragma once

#include <span>
#include <vector>

#include "privacy/event.h"
#include "privacy/renyi.h"

namespace evenkeel::privacy {

/// An epsilon, and the Renyi order that gives it.
struct Spent {
  double epsilon = 0;  ///< 0 or more; may be infinite
  double order = 0;    ///< 0: nothing was released
};

/// An account of releases. Copies are independent. Not thread-safe.
class Accountant {
 public:
  explicit Accountant(Orders orders = Orders::kEnforced);

  /// Adds releases. \throws kConfig for an event that check_event() refuses, or a count outside 0 .. kMostReleases
  void add(const Event& event, int64_t times = 1);
  void add(std::span<const Releases> releases);

  /// Returns the least epsilon for which all releases are (epsilon, delta)-private.
  Spent spent(double delta) const;
  /// Returns the least delta for an epsilon, at most 1.
  double delta(double epsilon) const;
  /// Returns true when `times` more events would cost more than the budget.
  bool would_exceed(const Event& event, int64_t times, const Budget& budget) const;
  /// Returns how many more of these events the budget allows, at most `most`.
  int64_t remaining(const Event& event, const Budget& budget, int64_t most) const;
  /// Returns all releases, with one entry for equal events.
  const std::vector<Releases>& releases() const { return releases_; }

 private:
  std::vector<double> of_one(const Event& event) const;

  Orders orders_;
  std::vector<double> sums_;  // one per order of renyi_orders()
  std::vector<Releases> releases_{};
};

/// Returns the least noise multiplier for which `times` events with a sampling probability fit into the budget, rounded
/// up by at most 1e-6 of itself.
/// \param before  account of earlier releases
/// \throws kConfig when even kMostNoise does not suffice; as check_budget()
double least_noise(double sampling, int64_t times, const Budget& budget, const Accountant& before = Accountant());

}  // namespace evenkeel::privacy
