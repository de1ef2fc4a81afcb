// Tests when a node tells its owner what it will send.
#include "flower/federation/node_testing.h"

namespace evenkeel::flower {
namespace {

class ToldToOwner : public NodeGives {
 protected:
  ToldToOwner() {
    options_.on_agreement = [this](const std::string& summary) {
      told_.push_back(summary);
      if (!accepts_) fail(kConfig, "no");
    };
  }
  std::vector<std::string> told_;
  bool accepts_ = true;
};

TEST_F(ToldToOwner, AnAgreementIsToldOnce) {
  ASSERT_EQ(offered({"train.rounds=4"}), "");
  ASSERT_EQ(offered({"train.rounds=4"}), "") << "the offer is sent again when the run begins";
  EXPECT_EQ(told_.size(), 1u);
  ASSERT_EQ(offered({"train.rounds=5"}), "");
  ASSERT_EQ(told_.size(), 2u) << "more rounds are another agreement";
  EXPECT_NE(told_[0], told_[1]);
  run_ = "another";
  ASSERT_EQ(offered({"train.rounds=5"}), "");
  EXPECT_EQ(told_.size(), 3u) << "of another run";
}

TEST_F(ToldToOwner, AnOfferThatWasRefusedIsToldAgain) {
  accepts_ = false;
  EXPECT_NE(offered({}), "");
  accepts_ = true;
  EXPECT_EQ(offered({}), "");
  EXPECT_EQ(told_.size(), 2u);
}

}  // namespace
}  // namespace evenkeel::flower
