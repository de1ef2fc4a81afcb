#include "flower/federation/budget_proposal.h"

#include <gtest/gtest.h>

#include <array>

namespace evenkeel::flower {
namespace {

constexpr std::array<int64_t, 3> kTopKs{1, 3, 8};
constexpr std::array<double, 3> kSpeeds{400, 200, 50};

TEST(BudgetProposal, IsTheLargestThatIsInTime) {
  for (const auto& [seconds, top_k] : {std::pair{2.5, 1}, {5.0, 3}, {19.9, 3}, {20.0, 8}}) {
    const auto proposal = proposed_top_k(kTopKs, kSpeeds, 1000, seconds);
    EXPECT_EQ(proposal.top_k, top_k) << seconds;
    EXPECT_TRUE(proposal.in_time) << seconds;
  }
}

TEST(BudgetProposal, SaysSoWhereNoneIsInTime) {
  const auto none = proposed_top_k(kTopKs, kSpeeds, 928, 1e-9);
  EXPECT_EQ(none.top_k, 1);
  EXPECT_FALSE(none.in_time);
  EXPECT_EQ(proposal_text(none, 928, 1e-9, 0.125),
            "this machine is not done with a round of 928 tokens in 1e-09 s at any K; proposed is the smallest, K = 1: "
            "budget 0.125");
  EXPECT_EQ(proposal_text({.top_k = 3, .in_time = true}, 928, 600, 0.375),
            "this machine is done with a round of 928 tokens in 600 s at K = 3: budget 0.375");
}

}  // namespace
}  // namespace evenkeel::flower
