// Tests of a node against a server that attacks: what it refuses, by the name of the rule.
#include "crypto/x25519.h"
#include "flower/federation/node_masks_testing.h"

namespace evenkeel::flower {
namespace {

TEST_F(NodeMasksOf, TermsThatTheRunDoesNotHaveAreRefusedByName) {
  expect_contains(refusal([](auto& c) { c.run = "other"; }), "a masked round of run other");
  expect_contains(refusal([](auto& c) { c.config = "another"; }), "this node agreed to");
  expect_contains(refusal([](auto& c) { c.round = 2; }), "masks of round 3, agreed on: 2 rounds");
  expect_contains(refusal([](auto& c) { c.bits = 64; }), "a masked round of 64 bits");
  expect_contains(refusal([](auto& c) { c.range = 4; }), "range 4, agreed on: 32 and 0.5");
  expect_contains(refusal([](auto& c) { c.exponent += 1; }), "could overflow");
  expect_contains(refusal([](auto& c) { c.exponent -= 1; }), "lose the smaller uploads");
  expect_contains(refusal([](auto& c) { c.threshold = 4; }), "with a threshold of 4, agreed on: 3");
  expect_contains(refusal([](auto& c) { c.threshold = 2; }), "with a threshold of 2, agreed on: 3");
  expect_contains(refusal([](auto& c) { c.roster.resize(2); }), "a roster of 2 members");
  expect_contains(refusal([](auto& c) { c.roster[1].fingerprint = "SHA256:other"; }), "the roster lacks this node");
  expect_contains(refusal([](auto& c) { c.roster[2].fingerprint = c.roster[0].fingerprint; }), "twice");
  expect_contains(refusal([](auto& c) { c.roster[1].client = 4; }), "this node is client 4, it is client 11");
  expect_contains(refusal([](auto& c) {
                    for (auto& member : c.roster) member.weight = 0;
                    c.roster[1].weight = 1;
                  }),
                  "client 11 has 1 of the weight 1 of a masked sum, which would show its upload");
  EXPECT_EQ(refusal(context()), "");
}

TEST_F(NodeMasksOf, ARosterWithAStrangerOrTooFewPeersIsRefused) {
  std::string peers;
  for (const int place : {0, 1, 2}) peers += keys_[static_cast<size_t>(place)].public_key().pem();
  write_file_atomic(file("peers.pem"), peers);
  options_.masking.peers = file("peers.pem").string();
  expect_contains(refusal(context()), "the roster has client 13");
  restart();
  write_file_atomic(file("peers.txt"), concat(openssh_line(keys_[0].public_key(), "north"), "\n",
                                              openssh_line(keys_[2].public_key(), "hill"), "\n",
                                              openssh_line(keys_[3].public_key(), "shore"), "\n"));
  options_.masking.peers = file("peers.txt").string();
  EXPECT_EQ(refusal(context(1)), "");
  restart();
  options_.masking.min_peers = 5;
  expect_contains(refusal(context(2)), "a roster of 4 members, allowed: 5 to 100");
}

TEST_F(NodeMasksOf, ASumOfFewerPeersThanTheOwnerAsksForIsNotSigned) {
  options_.masking.min_peers = 4;
  keys();
  shares();
  inboxes();
  uploads({3});
  expect_contains(refusal(kMaskSurvivorsEnvelope, set_message({true, true, true, false})),
                  "the sum of 3 members, this node helps with 4 or more");
  EXPECT_EQ(refusal(kMaskSurvivorsEnvelope, set_message({true, true, true, true})), "");
}

TEST_F(NodeMasksOf, TheThresholdOfARunWithColludersIsHigher) {
  const auto colluding = config().with([](fed::ExperimentConfig& values) { values.secure_aggregation.colluders = 2; });
  offer_.config = colluding->text();
  node_.emplace(options_, offer_, colluding);
  expect_contains(refusal(context()), "with a threshold of 3, agreed on: 4");
  EXPECT_EQ(refusal([](auto& c) { c.threshold = 4; }), "");
}

TEST_F(NodeMasksOf, AServerThatShowsTwoSetsOrLeavesTheNodeOutIsRefused) {
  keys();
  shares();
  inboxes();
  uploads();
  expect_contains(refusal(kMaskSurvivorsEnvelope, set_message({true, false, true, true})), "leaves this node out");
  expect_contains(refusal(kMaskSurvivorsEnvelope, set_message({true, true, false, false})), "the threshold is 3");
  expect_contains(refusal(kUnmaskEnvelope, unmask_message()), "did not sign");
  signatures({true, true, true, true});
  restart();
  expect_contains(refusal(kMaskSurvivorsEnvelope, set_message({true, true, true, false})), "a second set of survivors");
  auto other = unmask_message();
  other["request"]["survivors"] = "1110";
  expect_contains(refusal(kUnmaskEnvelope, other), "a set that this node did not sign");
  auto few = unmask_message();
  few["request"]["signatures"].erase("0"), few["request"]["signatures"].erase("2");
  expect_contains(refusal(kUnmaskEnvelope, few), "is signed by 2 members");
  auto strange = unmask_message();
  strange["identities"] = OrderedJson::array({keys_[0].public_key().pem()});
  expect_contains(refusal(kUnmaskEnvelope, strange), "is not signed by client");
  EXPECT_EQ(refusal(kUnmaskEnvelope, unmask_message()), "");
}

TEST_F(NodeMasksOf, AfterItHelpedWithASumItHelpsWithNoOtherOfThatRound) {
  keys();
  shares();
  inboxes();
  uploads();
  signatures({true, true, true, true});
  unmask();
  expect_contains(refusal(context(1)), "spent: this node helped to unmask round 2");
  node().committed(2);
  restart();
  expect_contains(refusal(context(2)), "spent");
  auto next = context();
  next.round = 0;
  EXPECT_EQ(refusal(next), "");
}

TEST_F(NodeMasksOf, KeysThatAMemberDidNotSignAreRefused) {
  keys();
  auto forged = roster_message();
  forged["keys"][2]["mask"] = forged["keys"][0]["mask"];
  expect_contains(refusal(kMaskRosterEnvelope, forged), "the keys of client 12 are not signed with its key");
  auto fewer = roster_message();
  fewer["keys"].erase(3);
  expect_contains(refusal(kMaskRosterEnvelope, fewer), "keys of 3 members");
  auto more = roster_message();
  more["tell"] = "all";
  expect_contains(refusal(kMaskRosterEnvelope, more), "has the field tell");
}

TEST_F(NodeMasksOf, AnAttemptThatTheNodeDoesNotHaveIsLost) {
  keys();
  const auto message = roster_message();
  options_.folder = folder_.path() / "another";
  restart();
  expect_contains(refusal(kMaskRosterEnvelope, message), "lost: this node has no keys of this attempt");
}

TEST_F(NodeMasksOf, ATaskOnOtherTermsThanThoseOfTheMasksIsRefused) {
  keys();
  shares();
  inboxes();
  node().admit(task());
  const auto expect_refused = [&](const std::function<void(fed::Task&)>& change) {
    auto changed = task();
    change(changed);
    EXPECT_THROW(node().admit(changed), Error);
  };
  const auto terms = [](fed::Task& task) -> fed::SummedTerms& { return *std::get<fed::Train>(task.ask).summed; };
  expect_refused([](fed::Task& task) { task.round = 0; });
  expect_refused([](fed::Task& task) { std::get<fed::Train>(task.ask).summed.reset(); });
  expect_refused([&](fed::Task& task) { terms(task).weight = 0.5; });
  expect_refused([&](fed::Task& task) { terms(task).roster = {11}; });
  expect_refused([&](fed::Task& task) { terms(task).exponent -= 1; });
  expect_refused([&](fed::Task& task) { terms(task).bits = 16; });
}

TEST_F(NodeMasksOf, ASecondSummandUnderTheMasksOfOneAttemptIsRefused) {
  keys();
  shares();
  inboxes();
  auto summand = summand_of(1);
  node().add(task(), summand);
  restart();
  auto other = summand_of(2);
  EXPECT_THROW(node().add(task(), other), Error);
  auto same = summand_of(1);
  node().add(task(), same);
  EXPECT_TRUE(at::equal(same.values, summand.values));
  secure::RingVector longer{at::zeros({6}, at::kInt), at::zeros({2}, at::kLong)};
  EXPECT_THROW(node().add(task(), longer), Error);
}

TEST_F(NodeMasksOf, ASetThatLeavesOneMemberWithNearlyAllTheWeightIsNotSigned) {
  weights_ = {0.4, 0.4, 0.005, 0.005};
  keys();
  shares();
  inboxes();
  uploads();
  expect_contains(refusal(kMaskSurvivorsEnvelope, set_message({false, true, true, true})),
                  "client 11 has 0.4 of the weight");
  EXPECT_EQ(refusal(kMaskSurvivorsEnvelope, set_message({true, true, true, false})), "");
}

TEST_F(NodeMasksOf, ASetBeforeItsOwnUploadIsNotSigned) {
  keys();
  shares();
  inboxes();
  expect_contains(refusal(kMaskSurvivorsEnvelope, set_message({true, true, true, true})), "leaves this node out");
}

TEST_F(NodeMasksOf, BoxesThatAreSwappedChangedOrMissingAreRefused) {
  keys();
  shares();
  auto swapped = inbox_message();
  std::swap(swapped["inbox"]["boxes"]["0"], swapped["inbox"]["boxes"]["2"]);
  expect_contains(refusal(kMaskSharesEnvelope, swapped), "the shares of client 10 cannot be read");
  auto changed = inbox_message();
  auto box = *from_base64(changed["inbox"]["boxes"]["3"].get<std::string>());
  box[40] ^= 1;
  changed["inbox"]["boxes"]["3"] = to_base64(box);
  expect_contains(refusal(kMaskSharesEnvelope, changed), "the shares of client 13 cannot be read");
  auto fewer = inbox_message();
  fewer["inbox"]["boxes"].erase("2");
  expect_contains(refusal(kMaskSharesEnvelope, fewer), "the shares of client 12 are missing");
  EXPECT_EQ(refusal(kMaskSharesEnvelope, inbox_message()), "");
}

TEST_F(NodeMasksOf, OtherKeysAfterTheSharesAreRefusedAlsoIfTheMemberSignsThem) {
  keys();
  shares();
  restart();
  auto other = server_->all_keys();
  other[2].share_public = crypto::x25519_public(crypto::Secret::random());
  other[2].signature = signer(2)(secure::text_of_keys(secure::digest_of(terms_), other[2]));
  auto message = roster_message();
  message["keys"] = to_json(other);
  expect_contains(refusal(kMaskRosterEnvelope, message), "after this node had split its secrets");
}

TEST_F(NodeMasksOf, WhatMembersSaidWhenTheAttemptWasBegunBeforeIsOfNoUse) {
  keys();
  shares();
  inboxes();
  uploads();
  signatures({true, true, true, true});
  const auto old_keys = server_->all_keys();
  const auto old_inbox = inbox_message();
  const auto old_request = unmask_message();
  keys(1);  // the node forgets the first attempt
  keys(0);  // the same terms once more: the node makes other keys
  auto replayed = roster_message();
  replayed["keys"][1] = to_json(old_keys)[1];
  expect_contains(refusal(kMaskRosterEnvelope, replayed), "the server changed this node's keys");
  shares();
  expect_contains(refusal(kMaskSharesEnvelope, old_inbox), "cannot be read");
  inboxes();
  uploads();
  signatures({true, true, true, true});
  expect_contains(refusal(kUnmaskEnvelope, old_request), "is not signed by client");
  EXPECT_EQ(refusal(kUnmaskEnvelope, unmask_message()), "");
}

}  // namespace
}  // namespace evenkeel::flower
