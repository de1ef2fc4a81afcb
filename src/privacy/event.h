/// \file  Describes what differential privacy accounts for: releases of noisy sums, and what they may cost in all.
#pragma once

#include <cstdint>

namespace evenkeel::privacy {

/// One release of a sum with Gaussian noise. Two data sets are neighbours when one has a member more than the other, or
/// when the term of one member is zero in one of them.
struct Event {
  /// Standard deviation of the noise divided by the largest norm of one member's term (the noise multiplier z), from
  /// kLeastNoise to kMostNoise (privacy/limits.h).
  double noise = 1;
  /// Probability q with which each member takes part, independently of the others and in secret (Poisson sampling); in
  /// (0, 1]. 1: no sampling that the accountant may count on.
  double sampling = 1;

  bool operator==(const Event&) const = default;
};

/// Several releases of one kind.
struct Releases {
  Event event;
  int64_t times = 1;  ///< 0 or more
};

/// The largest (epsilon, delta) that all releases together may cost.
struct Budget {
  double epsilon = 0;  ///< > 0
  double delta = 0;    ///< in (0, 1)
};

/// \throws kConfig naming the value that is not possible; `who` is the flag, the section or the file that has it
void check_event(const Event& event, const char* who);
void check_budget(const Budget& budget, const char* who);

}  // namespace evenkeel::privacy
