#include "privacy/member_accounts.h"

#include <gtest/gtest.h>

namespace evenkeel::privacy {
namespace {

TEST(MemberAccounts, EachMemberPaysForItsOwnReleasesAndForThoseOfAll) {
  const Event event{.noise = 2};
  MemberAccounts accounts;
  accounts.add(event, 1, std::vector<int64_t>{3, 5});
  accounts.add(event, 4);  // of all, before 7 is named
  accounts.add(event, 2, std::vector<int64_t>{3, 7});
  Accountant seven, four;
  seven.add(event, 7), four.add(event, 4);
  EXPECT_EQ(accounts.spent(1e-5).epsilon, seven.spent(1e-5).epsilon) << "of member 3";
  EXPECT_EQ(accounts.of_all().spent(1e-5).epsilon, four.spent(1e-5).epsilon);
}

TEST(MemberAccounts, ABudgetIsExceededByTheMembersWhoTakePart) {
  const Event event{.noise = 2};
  MemberAccounts accounts;
  accounts.add(event, 5, std::vector<int64_t>{1});
  Accountant five;
  five.add(event, 5);
  const Budget budget{five.spent(1e-5).epsilon + 1e-9, 1e-5};
  EXPECT_TRUE(accounts.would_exceed(event, std::vector<int64_t>{0, 1}, budget));
  EXPECT_FALSE(accounts.would_exceed(event, std::vector<int64_t>{0, 2}, budget));
  EXPECT_TRUE(accounts.would_exceed(event, {}, budget)) << "all include member 1";
  EXPECT_FALSE(accounts.would_exceed(event, std::vector<int64_t>{}, budget)) << "nobody pays";
  EXPECT_EQ(accounts.remaining(event, budget, 100), 0);
}

}  // namespace
}  // namespace evenkeel::privacy
