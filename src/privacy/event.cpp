#include "privacy/event.h"

#include "base/plain/error.h"
#include "privacy/limits.h"

namespace evenkeel::privacy {

void check_event(const Event& event, const char* who) {
  EK_CHECK(event.noise >= kLeastNoise && event.noise <= kMostNoise, kConfig, who, ": the noise multiplier is ",
           event.noise, ", allowed: ", kLeastNoise, " to ", kMostNoise);
  EK_CHECK(event.sampling > 0 && event.sampling <= 1, kConfig, who, ": the sampling probability is ", event.sampling,
           ", allowed: above 0, up to 1");
}

void check_budget(const Budget& budget, const char* who) {
  EK_CHECK(budget.epsilon > 0 && budget.epsilon <= kMostEpsilon, kConfig, who, ": epsilon is ", budget.epsilon,
           ", allowed: above 0, up to ", kMostEpsilon);
  EK_CHECK(budget.delta >= kLeastDelta && budget.delta < 1, kConfig, who, ": delta is ", budget.delta,
           ", allowed: ", kLeastDelta, " to below 1");
}

}  // namespace evenkeel::privacy
