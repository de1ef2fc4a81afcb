#include "fed/round/update_bounds.h"

#include <gtest/gtest.h>

#include <cmath>

namespace evenkeel::fed {
namespace {

std::vector<int64_t> left_out(std::vector<UpdateSize> sizes, const UpdateBounds& bounds = {.ratio = 10}) {
  std::vector<int64_t> ids;
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i].client = static_cast<int64_t>(i);
  for (const auto& one : too_large(sizes, bounds)) ids.push_back(one.client);
  return ids;
}

using Ids = std::vector<int64_t>;

TEST(UpdateBounds, AnUpdateFarBeyondTheMedianIsLeftOut) {
  EXPECT_EQ(left_out({{.moved = 2}, {.moved = 1e9}, {.moved = 1.5}}), Ids{1});
  EXPECT_EQ(left_out({{.moved = 2}, {.moved = 15.1}, {.moved = 1.5}, {.moved = 0.1}}), Ids{1}) << "lower median 1.5";
  EXPECT_EQ(left_out({{.moved = 2}, {.moved = 14.9}, {.moved = 1.5}, {.moved = 0.1}}), Ids{});
}

TEST(UpdateBounds, TwoOfTenThatAreLargeAreBothLeftOut) {
  std::vector<UpdateSize> sizes(10, {.moved = 3});
  sizes[4].moved = sizes[7].moved = 90;
  EXPECT_EQ(left_out(sizes), (Ids{4, 7}));
}

TEST(UpdateBounds, AClientWithMoreStepsMayMoveFarther) {
  EXPECT_EQ(left_out({{.moved = 1, .steps = 1}, {.moved = 40, .steps = 40}, {.moved = 1, .steps = 1}}), Ids{});
  EXPECT_EQ(left_out({{.moved = 1, .steps = 1}, {.moved = 401, .steps = 40}, {.moved = 1, .steps = 1}}), Ids{1});
  EXPECT_EQ(left_out({{.moved = 30, .steps = 40}, {.moved = 9, .steps = 1}, {.moved = 30, .steps = 40}}), Ids{})
      << "one step, farther than those of others, but no farther in all";
}

TEST(UpdateBounds, SmallUpdatesMakeNoHonestOneTooLargeWhileTheyAreTheMinority) {
  EXPECT_EQ(left_out({{.moved = 0}, {.moved = 3}, {.moved = 4}}), Ids{});
  EXPECT_EQ(left_out({{.moved = 0}, {.moved = 1e-9}, {.moved = 3}, {.moved = 4}, {.moved = 5}}), Ids{});
}

TEST(UpdateBounds, OfTwoUpdatesEachIsComparedWithItsOptimisersReach) {
  EXPECT_EQ(left_out({{.moved = 1e-9, .reach = 2}, {.moved = 3, .reach = 2}}), Ids{}) << "nobody knows who is right";
  EXPECT_EQ(left_out({{.moved = 3, .reach = 2}, {.moved = 21, .reach = 2}}), Ids{1});
  EXPECT_EQ(left_out({{.moved = 1e9, .reach = 0}}), Ids{}) << "an optimiser without a bound";
  EXPECT_EQ(left_out({{.moved = 0, .reach = 2}, {.moved = 0, .reach = 2}, {.moved = 21, .reach = 2}}), Ids{2});
}

TEST(UpdateBounds, AnUpdateThatIsNotFiniteIsBeyondEveryBound) {
  EXPECT_EQ(left_out({{.moved = NAN}, {.moved = 1}, {.moved = 1}}), Ids{0});
  EXPECT_EQ(left_out({{.moved = HUGE_VAL}, {.moved = 1}, {.moved = 1}}), Ids{0});
  EXPECT_EQ(left_out({{.moved = NAN}}, {.norm = 5}), Ids{0});
}

TEST(UpdateBounds, TheNormBoundsEveryUpdateByItself) {
  EXPECT_EQ(left_out({{.moved = 4}, {.moved = 6}}, {.norm = 5}), Ids{1});
  EXPECT_EQ(left_out({{.moved = 4}, {.moved = 6e9}}, {}), Ids{}) << "no bound";
}

TEST(UpdateBounds, TheReasonHasTheValueTheBoundAndTheKey) {
  const std::vector<UpdateSize> sizes{{.client = 0, .moved = 2}, {.client = 5, .moved = 80}, {.client = 7, .moved = 1}};
  const auto found = too_large(sizes, {.ratio = 4});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].client, 5);
  EXPECT_EQ(found[0].moved, 80);
  EXPECT_EQ(found[0].why, "its update moves by 80, clients.update_ratio allows 4 times 2, the round's median");
}

}  // namespace
}  // namespace evenkeel::fed
