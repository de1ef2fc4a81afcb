// Tests which state a node goes on with after its reply was taken, refused, or of unknown fate.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "base/format/record.h"
#include "flower/federation/node_testing.h"

namespace evenkeel::flower {
namespace {

/// A node of a method whose clients have state. What becomes of its reply in round 1 decides what it sends in round 2.
class NodeWithState : public NodeInRun {
 protected:
  /// Returns the upload of round 2. \param settle  called when the reply of round 1 was made
  at::Tensor upload_after(const std::function<void()>& settle) {
    options_.folder = folder_.path() / concat("memory-", ++runs_);
    restart();
    join({"train.rounds=4", "evaluate.every=1", R"(method.a3smoe.rescaler="learn")"}, "a3smoe");
    EXPECT_EQ(asked(training(0)), "");
    reply_to(training(1));
    settle();
    return reply_to(training(2)).payload_N;
  }
  Envelope reply_to(const fed::Task& task) {
    return node().answer({run_, kTaskEnvelope, fed::header_of(task), task.payload.bytes});
  }
  /// Kills the node before it knows whether its reply arrived, and starts it again.
  /// \param told  what the server says of the reply with its offer; nothing: it says nothing
  void kill(std::optional<bool> told) {
    restart();
    Envelope offer{.run = run_, .kind = kOfferEnvelope, .header = record::write(offer_of(*experiment_, 2)).dump()};
    if (told) offer.outcome = record::write(WorkOutcome{2, fed::AuditWork::kTrain, *told, ""}).dump();
    EXPECT_EQ(said_to(offer), "");
  }

 private:
  int runs_ = 0;
};

TEST_F(NodeWithState, KeepsThatOfAReplyThatTheServerHas) {
  const auto expected = upload_after([&] { node().delivered(); });
  EXPECT_TRUE(at::equal(upload_after([&] { kill(true); }), expected));
  EXPECT_TRUE(at::equal(upload_after([&] { kill({}); }), expected));
  EXPECT_FALSE(at::equal(upload_after([&] { kill(false); }), expected));
}

TEST_F(NodeWithState, DropsThatOfAReplyThatTheServerHasNot) {
  const auto expected = upload_after([&] { node().not_delivered("late"); });
  EXPECT_TRUE(at::equal(upload_after([&] { kill(false); }), expected));
  const auto answered_another = [&] {
    node().not_delivered("late");
    EXPECT_EQ(asked(scoring(2)), "");  // of which the answer is delivered
  };
  EXPECT_TRUE(at::equal(upload_after(answered_another), expected));
}

}  // namespace
}  // namespace evenkeel::flower
