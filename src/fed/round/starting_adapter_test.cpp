// The state before the first round.
#include "fed/round/starting_adapter.h"

#include <gtest/gtest.h>

#include "fed/testing.h"
#include "lora/algebra.h"

namespace evenkeel::fed {
namespace {

using StartingAdapter = testing::SmallRun;

/// Begins with a change of the base, which no client would add.
class BeginsWithAChange : public methods::FederatedMethod {
 public:
  methods::ServerState initialize(const methods::ServerView& server) const override {
    auto state = FederatedMethod::initialize(server);
    const auto& [site, factors] = *state.global.adapters.begin();
    state.global.base_delta[site] = lora::weighted(factors, 1.0);
    return state;
  }
};

TEST_F(StartingAdapter, AChangeOfTheBaseBeforeTheFirstRoundIsRefused) {
  auto e = experiment("fedex-lora");
  EXPECT_EQ(testing::refusal([&] { first_state(e.server); }), "no error");
  e.server.method = std::make_unique<BeginsWithAChange>();
  EXPECT_NE(testing::refusal([&] { first_state(e.server); })
                .find("method fedex-lora changes the base in initialize(), allowed: base_delta of the state that "
                      "aggregate() returns"),
            std::string::npos);
}

}  // namespace
}  // namespace evenkeel::fed
