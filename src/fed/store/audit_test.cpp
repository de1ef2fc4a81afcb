#include "fed/store/audit_summary.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel::fed {
namespace {

class Audit : public ::testing::Test {
 protected:
  std::vector<AuditLine> lines() const {
    std::vector<AuditLine> lines;
    found_ = read_audit(file_, [&](const AuditLine& line) { lines.push_back(line); });
    return lines;
  }
  const testing::TemporaryFolder temporary_;
  const fs::path file_ = temporary_.path() / "new" / kAuditFile;
  mutable ChainCheck found_;
};

TEST_F(Audit, EventsRoundTripWithTimeAndWithoutEmptyFields) {
  AuditLog log(file_);
  EXPECT_FALSE(path_exists(file_)) << "nothing is written before the first event";
  log.add({.kind = AuditKind::kStart, .outcome = "evenkeel"});
  log.add({.kind = AuditKind::kReply,
           .key = "SHA256:abc",
           .name = "harbour",
           .client = 2,
           .round = 7,
           .work = AuditWork::kTrain,
           .bytes_down = 11,
           .bytes_up = 0,
           .digest = std::string(64, 'a'),
           .outcome = "reply",
           .seconds = 1.5,
           .client_s = 1.25,
           .moved = 0.5,
           .peer = std::string(64, 'b')});
  const auto read = lines();
  ASSERT_EQ(read.size(), 2u);
  const auto& reply = read[1].event;
  EXPECT_EQ(reply.kind, AuditKind::kReply);
  EXPECT_EQ(reply.key, "SHA256:abc");
  EXPECT_EQ(reply.name, "harbour");
  EXPECT_EQ(reply.client, 2);
  EXPECT_EQ(reply.round, 7);
  EXPECT_EQ(reply.work, AuditWork::kTrain);
  EXPECT_EQ(reply.bytes_down, 11);
  EXPECT_EQ(reply.bytes_up, 0);
  EXPECT_EQ(reply.digest, std::string(64, 'a'));
  EXPECT_EQ(reply.seconds, 1.5);
  EXPECT_EQ(reply.client_s, 1.25);
  EXPECT_EQ(reply.moved, 0.5);
  EXPECT_EQ(reply.peer, std::string(64, 'b'));
  EXPECT_EQ(read[1].digest, log.head());
  ASSERT_EQ(read[0].time.size(), 24u);
  EXPECT_EQ(read[0].time[19], '.');
  EXPECT_EQ(read[0].time[23], 'Z');
  const auto first = read_file(file_);
  for (const auto* absent : {"client", "round", "work", "bytes", "digest", "seconds", "moved", "peer", "name"})
    EXPECT_EQ(first.substr(0, first.find('\n')).find(absent), std::string::npos) << absent;
}

TEST_F(Audit, TextOfOthersIsOneLineOfUtf8) {
  AuditLog log(file_);
  log.add({.kind = AuditKind::kRefused, .name = "a\nb\x1b[31m", .outcome = "bad \xff byte\r\n{\"kind\":\"reply\"}"});
  log.add({.kind = AuditKind::kLost, .outcome = std::string(100000, 'x')});
  const auto read = lines();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_FALSE(found_.fault);
  EXPECT_EQ(read[0].event.name, R"(a\nb\x1b[31m)");
  EXPECT_EQ(read[0].event.outcome, R"(bad \xff byte\r\n{"kind":"reply"})");
  EXPECT_LE(read[1].event.outcome.size(), 1000u);
}

TEST_F(Audit, AnotherProcessGoesOnWithTheChain) {
  AuditLog(file_).add({.kind = AuditKind::kStart});
  AuditLog again(file_);
  EXPECT_EQ(again.head().size(), 64u);
  again.add({.kind = AuditKind::kResume});
  EXPECT_EQ(lines().size(), 2u);
  EXPECT_FALSE(found_.fault);
  EXPECT_EQ(found_.head, again.head());
}

TEST_F(Audit, ALineOfAnUnknownKindIsAFaultOfThatLine) {
  AuditLog(file_).add({.kind = AuditKind::kStart});
  append_chained(file_, {{"kind", "party"}, {"time", "now"}});
  EXPECT_EQ(lines().size(), 1u);
  ASSERT_TRUE(found_.fault);
  EXPECT_NE(std::string(found_.fault->what()).find("line 2"), std::string::npos) << found_.fault->what();
}

TEST_F(Audit, ASummaryCountsRepliesAndLossesByWork) {
  AuditLog log(file_);
  const auto end = [](AuditKind kind, AuditWork work, int64_t client, int64_t down, int64_t up) {
    return AuditEvent{.kind = kind, .client = client, .work = work, .bytes_down = down, .bytes_up = up};
  };
  log.add(end(AuditKind::kTask, AuditWork::kTrain, 1, 1000, 0));  // not the end of one
  log.add(end(AuditKind::kReply, AuditWork::kTrain, 1, 30, 20));
  log.add(end(AuditKind::kLost, AuditWork::kTrain, 2, 31, 0));
  log.add(end(AuditKind::kReply, AuditWork::kScore, 1, 5, 7));
  const auto sum = summary_of(file_);
  EXPECT_EQ(sum.of(AuditWork::kTrain).replies, 1);
  EXPECT_EQ(sum.of(AuditWork::kTrain).lost, 1);
  EXPECT_EQ(sum.of(AuditWork::kTrain).bytes_down, 61);
  EXPECT_EQ(sum.of(AuditWork::kTrain).bytes_up, 20);
  EXPECT_EQ(sum.of(AuditWork::kScore).bytes_up, 7);
  EXPECT_EQ(sum.of(AuditWork::kGradients).replies, 0);
  EXPECT_EQ(sum.last.at(1).at(AuditWork::kTrain).bytes_down, 30);
  EXPECT_EQ(sum.last.at(2).at(AuditWork::kTrain).kind, AuditKind::kLost);
  EXPECT_FALSE(sum.last.at(2).contains(AuditWork::kScore));
}

TEST_F(Audit, NoFileHasNoLinesAndALogWithoutAFileWritesNothing) {
  EXPECT_TRUE(lines().empty());
  EXPECT_FALSE(found_.fault);
  AuditLog none;
  none.add({.kind = AuditKind::kStart});
  EXPECT_TRUE(none.head().empty());
}

}  // namespace
}  // namespace evenkeel::fed
