#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <set>

#include "secure/testing.h"

namespace evenkeel::secure {
namespace {

using namespace evenkeel::testing;

void expect_refusal(const std::function<void()>& work, std::string_view part) {
  const auto text = refusal(work);
  EXPECT_NE(text.find(part), std::string::npos) << "refused with: " << text;
}

TEST(MaskedRoundTest, CommitmentsAreThoseOfTheVector) {
  EXPECT_EQ(hex(commitment_to(sha256_of("evenkeel secagg vector 1"), secret_of("self mask 0"))),
            "94d30f8ee74bede4fa1c7e34685853f212a33e11468f1a2ddbdaa6e74a6791e1");
}

TEST(MaskedRoundTest, TheSumOfAllMembersIsThatOfTheirSummands) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train();
  EXPECT_TRUE(same(round.finish(), sum_of({4, 7, 9, 12, 20})));
}

TEST(MaskedRoundTest, AMaskedUploadIsNotTheSummand) {
  MaskedRound round({4, 7, 9}, 3);
  round.exchange_keys();
  round.exchange_shares();
  EXPECT_FALSE(at::equal(round.masked(0).values, summand_of(4).values));
}

TEST(MaskedRoundTest, AnyOneOrTwoOfFiveMembersMayBeLostInTraining) {
  for (Place one = 0; one < 5; ++one)
    for (Place two = one; two < 5; ++two) {
      MaskedRound round({4, 7, 9, 12, 20}, 3);
      round.train({one, two});
      const auto clients = round.surviving_clients();
      EXPECT_TRUE(same(round.finish(), sum_of(clients))) << one << ' ' << two;
    }
}

TEST(MaskedRoundTest, MembersThatLeaveAfterTheirUploadAreInTheSumWhileThresholdManyAnswer) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train({4});
  for (const Place place : {0, 1, 3}) round.sign(place);
  for (const Place place : {0, 1, 3}) round.server.take_unmask(place, round.unmasked(place));
  EXPECT_TRUE(same(round.server.sum(), sum_of({4, 7, 9, 12})));
}

TEST(MaskedRoundTest, FewerUploadsThanTheThresholdLeaveTheSumMasked) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.exchange_keys();
  round.exchange_shares();
  for (const Place place : {0, 1}) round.server.take_upload(place, round.masked(place));
  expect_refusal([&] { round.server.close(); }, "2 of 5 masked uploads arrived, the threshold is 3");
}

TEST(MaskedRoundTest, FewerSharesThanTheThresholdLeaveTheSumMasked) {
  MaskedRound round({4, 7, 9, 12}, 3);
  round.train();
  for (const Place place : round.survivors()) round.sign(place);
  for (const Place place : {0, 1}) round.server.take_unmask(place, round.unmasked(place));
  expect_refusal([&] { round.server.sum(); }, "2 members helped");
}

TEST(MaskedRoundTest, ALateUploadAndASecondOneAreThrownAway) {
  MaskedRound round({4, 7, 9, 12}, 3);
  round.exchange_keys();
  round.exchange_shares();
  for (const Place place : {0, 1, 2}) EXPECT_TRUE(round.server.take_upload(place, round.masked(place)));
  EXPECT_FALSE(round.server.take_upload(1, round.masked(1)));
  round.server.close();
  EXPECT_FALSE(round.server.take_upload(3, round.masked(3)));
  EXPECT_TRUE(same(round.finish(), sum_of({4, 7, 9})));
}

TEST(MaskedRoundTest, OneWrongShareIsNamedAndDoesNotEndTheRound) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train({2});
  for (const Place place : round.survivors()) round.sign(place);
  for (const Place place : round.survivors()) {
    auto reply = round.unmasked(place);
    if (place == 0) reply.seeds.at(1).bytes()[5] ^= 1;
    round.server.take_unmask(place, std::move(reply));
  }
  EXPECT_TRUE(same(round.server.sum(), sum_of({4, 7, 12, 20})));
  EXPECT_EQ(round.server.wrong(), std::set<Place>{0});
}

/// Returns `count` ids of clients.
std::vector<int64_t> ids_of(int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

/// Phases 4 and 5 with all survivors. The members at `liars` send a wrong share of the seed of each client in `about`.
void unmask_with(MaskedRound& round, const std::set<Place>& liars, const std::set<Place>& about) {
  for (const Place place : round.survivors()) round.sign(place);
  for (const Place place : round.survivors()) {
    auto reply = round.unmasked(place);
    for (const Place of : liars.contains(place) ? about : std::set<Place>())
      reply.seeds.at(of).bytes()[static_cast<size_t>(place)] ^= 1;
    round.server.take_unmask(place, std::move(reply));
  }
}

TEST(MaskedRoundTest, AWrongShareOfTheFirstOfFourteenMembersDoesNotEndTheRound) {
  const auto clients = ids_of(14);
  MaskedRound round(clients, 8);
  round.train();
  unmask_with(round, {0}, {1});
  EXPECT_TRUE(same(round.server.sum(), sum_of(clients)));
  EXPECT_EQ(round.server.wrong(), std::set<Place>{0});
}

TEST(MaskedRoundTest, ThreeOfThirtyMembersWhoseSharesAreWrongAreNamedAndDoNotEndTheRound) {
  const auto clients = ids_of(30);
  MaskedRound round(clients, 16);
  round.train();
  unmask_with(round, {0, 1, 7}, {0, 5, 29});
  EXPECT_TRUE(same(round.server.sum(), sum_of(clients)));
  EXPECT_EQ(round.server.wrong(), (std::set<Place>{0, 1, 7}));
}

TEST(MaskedRoundTest, AMemberThatSentOneWrongShareStillHelpsWithItsOthers) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train();
  for (const Place place : round.survivors()) round.sign(place);
  for (const Place place : round.survivors()) {  // the shares of client 9 are right at the places 0, 1 and 2 alone
    auto reply = round.unmasked(place);
    if (place == 0) reply.seeds.at(1).bytes()[5] ^= 1;
    if (place > 2) reply.seeds.at(2).bytes()[5] ^= 1;
    round.server.take_unmask(place, std::move(reply));
  }
  EXPECT_TRUE(same(round.server.sum(), sum_of({4, 7, 9, 12, 20})));
  EXPECT_EQ(round.server.wrong(), (std::set<Place>{0, 3, 4}));
}

TEST(MaskedRoundTest, TooManyWrongSharesEndTheRoundNamingTheClient) {
  MaskedRound round({4, 7, 9, 12}, 3);
  round.train();
  for (const Place place : round.survivors()) round.sign(place);
  for (const Place place : {0, 1, 2}) {
    auto reply = round.unmasked(place);
    if (place == 0) reply.seeds.at(3).bytes()[5] ^= 1;
    round.server.take_unmask(place, std::move(reply));
  }
  expect_refusal([&] { round.server.sum(); }, "own mask of client 12");
}

TEST(MaskedRoundTest, ARestartedServerAndNodesEndTheRoundWithTheSameSum) {
  MaskedRound round({4, 7, 9, 12}, 3);
  round.train({3});
  for (const Place place : round.survivors()) round.sign(place);
  for (const Place place : round.survivors()) {
    NodeRound again(round.nodes.at(place).attempt(), rules_of(round.client(place)));
    auto reply = again.unmask(round.server.unmask_request(), verified, round.summed[place]);
    EXPECT_EQ(again.unmask(round.server.unmask_request(), verified, round.summed[place]).seeds, reply.seeds);
    round.server.take_unmask(place, std::move(reply));
  }
  EXPECT_TRUE(same(round.server.sum(), sum_of({4, 7, 9})));
}

// --- what a server that attacks may try ---

TEST(AttackTest, ARosterOfTwoIsRefused) {
  expect_refusal([] { check_context(context_of({4, 7}, 3), rules_of(4)); }, "a roster of 2 members");
  auto rules = rules_of(4);
  rules.min_peers = 5;
  expect_refusal([&] { check_context(context_of({4, 7, 9, 12}, 3), rules); }, "allowed: 5 to 100");
}

TEST(AttackTest, ARosterWithAForeignKeyIsRefused) {
  auto rules = rules_of(4);
  rules.peers = {key_of(7), key_of(9)};
  EXPECT_EQ(check_context(context_of({4, 7, 9}, 3), rules), 0);
  expect_refusal([&] { check_context(context_of({4, 7, 666}, 3), rules); }, "none of this node's peers");
}

TEST(AttackTest, ARosterWithOneKeyTwiceOrWithoutTheNodeIsRefused) {
  auto twice = context_of({4, 7, 9}, 3);
  twice.roster[2].fingerprint = key_of(7);
  expect_refusal([&] { check_context(twice, rules_of(4)); }, "twice");
  expect_refusal([] { check_context(context_of({4, 7, 9}, 3), rules_of(5)); }, "lacks this node's key");
}

TEST(AttackTest, ThresholdsThatTwoGroupsCouldReachAreRefused) {
  for (const int64_t threshold : {0, 2, 3, 7})
    expect_refusal([&] { check_context(context_of({1, 2, 3, 4, 5, 6}, threshold), rules_of(4)); }, "a threshold of");
  EXPECT_EQ(check_context(context_of({1, 2, 3, 4, 5, 6}, 4), rules_of(4)), 3);
}

TEST(AttackTest, AnotherRunOrConfigIsRefused) {
  for (const auto change : {&RoundContext::run, &RoundContext::config}) {
    auto context = context_of({4, 7, 9}, 3);
    context.*change = "another";
    expect_refusal([&] { check_context(context, rules_of(4)); }, "this node agreed to");
  }
}

TEST(AttackTest, WeightsAndScalesThatMarkOneUploadAreRefused) {
  auto heavy = context_of({4, 7, 9}, 3);
  heavy.roster[0].weight = 1.0;
  expect_refusal([&] { check_context(heavy, rules_of(4)); }, "add up to");
  heavy.roster[0].weight = -0.1;
  expect_refusal([&] { check_context(heavy, rules_of(4)); }, "weight -0.1");
  for (const int64_t change : {-1, 1}) {
    auto other = context_of({4, 7, 9}, 3);
    other.exponent += change;
    expect_refusal([&] { check_context(other, rules_of(4)); }, "could overflow or lose the smaller uploads");
  }
}

/// A round of which the first member has `weight`, and the others have equal parts of the rest.
RoundContext heavy_context(double weight) {
  auto context = context_of({4, 7, 9, 12, 20}, 3);
  for (auto& member : context.roster) member.weight = (1 - weight) / 4;
  context.roster[0].weight = weight;
  return context;
}

TEST(AttackTest, ARosterInWhichOneMemberHasNearlyAllTheWeightIsRefusedByAllMembers) {
  for (const int64_t client : {4, 7})
    expect_refusal([&] { check_context(heavy_context(0.96), rules_of(client)); }, "client 4 has 0.96 of the weight 1");
  EXPECT_EQ(check_context(heavy_context(0.94), rules_of(4)), 0);
}

TEST(AttackTest, ASetOfUploadsThatIsolatesOneMemberIsSignedByNobody) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);  // the server says that the members with weight are lost
  for (auto& member : round.context.roster) member.weight = 0.005;
  round.context.roster[0].weight = round.context.roster[4].weight = 0.4;
  round.server = ServerRound(round.context);
  round.nodes.clear();
  for (Place place = 0; place < 5; ++place)
    round.nodes.emplace(place, NodeRound(round.context, rules_of(round.client(place)), round.summed[place]));
  round.exchange_keys();
  round.exchange_shares();
  for (Place place = 0; place < 4; ++place) round.server.take_upload(place, round.masked(place));
  const Survivors isolated{true, true, true, true, false};
  for (Place place = 0; place < 4; ++place)
    expect_refusal([&] { round.nodes.at(place).sign(isolated, signer_of(round.client(place))); },
                   "which would show its upload");
  expect_refusal([&] { round.server.close(); }, "client 4 has 0.4 of the weight");
  round.server.take_upload(4, round.masked(4));
  EXPECT_TRUE(same(round.finish(), sum_of({4, 7, 9, 12, 20}))) << "the server goes on with a set that hides all";
}

TEST(AttackTest, KeysThatTheServerMadeAreRefused) {
  MaskedRound round({4, 7, 9}, 3);
  round.exchange_keys();
  auto keys = round.server.all_keys();
  keys[1].share_public = crypto::Bytes32{9};
  expect_refusal([&] { round.nodes.at(0).take_keys(keys, verified); }, "not signed with its key");
  keys = round.server.all_keys();
  keys[0].mask_public = keys[1].mask_public;
  keys[0].signature = signature_by(key_of(4), text_of_keys(digest_of(round.context), keys[0]));
  expect_refusal([&] { round.nodes.at(0).take_keys(keys, verified); }, "changed this node's keys");
  keys = round.server.all_keys();
  keys.pop_back();
  expect_refusal([&] { round.nodes.at(0).take_keys(keys, verified); }, "keys of 2 members");
}

TEST(AttackTest, KeysOfAnotherAttemptAreRefused) {
  MaskedRound round({4, 7, 9}, 3);
  round.exchange_keys();
  ListedRounds none;
  NodeRound later(context_of({4, 7, 9}, 3, 1), rules_of(4), none);
  auto keys = round.server.all_keys();
  keys[0] = later.keys(signer_of(4));
  expect_refusal([&] { later.take_keys(keys, verified); }, "not signed with its key");
}

TEST(AttackTest, OtherKeysAfterTheSharesAreRefused) {
  MaskedRound round({4, 7, 9}, 3);
  round.exchange_keys();
  const auto sent = round.nodes.at(0).take_keys(round.server.all_keys(), verified);
  auto keys = round.server.all_keys();
  keys[1].share_public = crypto::x25519_public(secret_of("colluding"));
  keys[1].signature = signature_by(key_of(7), text_of_keys(digest_of(round.context), keys[1]));
  expect_refusal([&] { round.nodes.at(0).take_keys(keys, verified); }, "after this node had split");
  EXPECT_EQ(round.nodes.at(0).take_keys(round.server.all_keys(), verified), sent);
}

TEST(AttackTest, ChangedOrSwappedBoxesAreRefused) {
  MaskedRound round({4, 7, 9}, 3);
  round.exchange_keys();
  for (auto& [place, node] : round.nodes) round.server.take_shares(node.take_keys(round.server.all_keys(), verified));
  auto inbox = round.server.inbox_of(0);
  std::swap(inbox.boxes.at(1), inbox.boxes.at(2));
  expect_refusal([&] { round.nodes.at(0).take_shares(inbox); }, "cannot be read");
  inbox = round.server.inbox_of(0);
  inbox.boxes.erase(2);
  expect_refusal([&] { round.nodes.at(0).take_shares(inbox); }, "shares of client 9 are missing");
  expect_refusal([&] { round.masked(0); }, "before the shares of all members");
}

TEST(AttackTest, ASecondUploadUnderTheSameMasksIsRefused) {
  MaskedRound round({4, 7, 9}, 3);
  round.exchange_keys();
  round.exchange_shares();
  const auto first = round.masked(0);
  EXPECT_TRUE(same(round.masked(0), first)) << "the same summand is masked again";
  auto other = summand_of(5);
  expect_refusal([&] { round.nodes.at(0).mask(other); }, "a second upload");
}

TEST(AttackTest, ASetBelowTheThresholdOrOfAnotherSizeIsNotSigned) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train();
  expect_refusal([&] { round.nodes.at(0).sign({true, true, false, false, false}, signer_of(4)); }, "the sum of 2");
  expect_refusal([&] { round.nodes.at(0).sign({true, true, true}, signer_of(4)); }, "a set of 3 places");
}

TEST(AttackTest, ASetOfFewerMembersThanTheOwnerOfANodeAsksForIsNotSigned) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  auto rules = rules_of(4);
  rules.min_peers = 5;
  round.nodes.erase(0);
  round.nodes.emplace(0, NodeRound(round.context, rules, round.summed[0]));
  round.train({4});
  expect_refusal([&] { round.sign(0); }, "the sum of 4 members, this node helps with 5 or more");
  NodeRound again(round.nodes.at(0).attempt(), rules);
  expect_refusal([&] { again.sign(round.server.close(), signer_of(4)); }, "this node helps with 5 or more");
  for (const Place place : {1, 2, 3}) round.sign(place);
  expect_refusal([&] { again.unmask(round.server.unmask_request(), verified, round.summed[0]); },
                 "this node helps with 5 or more");
  rules.min_peers = 4;
  NodeRound content(round.nodes.at(0).attempt(), rules);
  round.server.take_signature(0, content.sign(round.server.close(), signer_of(4)), verified);
}

TEST(AttackTest, ANodeThatIsLeftOutDoesNotHelp) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train();
  const Survivors others{false, true, true, true, true};
  expect_refusal([&] { round.nodes.at(0).sign(others, signer_of(4)); }, "leaves this node out");
  UnmaskRequest request{.survivors = others};
  const auto text = text_of_survivors(digest_of(round.context), digest_of(round.nodes.at(0).attempt().keys), others);
  for (Place place = 1; place < 5; ++place) request.signatures[place] = signature_by(key_of(round.client(place)), text);
  expect_refusal([&] { round.nodes.at(0).unmask(request, verified, round.summed[0]); }, "leaves this node out");
}

TEST(AttackTest, ANodeWithoutAnUploadSignsNoSet) {
  MaskedRound round({4, 7, 9, 12}, 3);
  round.exchange_keys();
  round.exchange_shares();
  expect_refusal([&] { round.nodes.at(0).sign({true, true, true, true}, signer_of(4)); }, "leaves this node out");
}

TEST(AttackTest, ASetThatIsAskedOffInAnotherOrderOrBeforeItWasSignedIsRefused) {
  MaskedRound round({4, 7, 9, 12}, 3);
  round.train({3});
  for (const Place place : {1, 2}) round.sign(place);
  auto request = round.server.unmask_request();
  expect_refusal([&] { round.nodes.at(0).unmask(request, verified, round.summed[0]); }, "did not sign");
  EXPECT_FALSE(round.summed[0].find("hospital", 3)) << "nothing was given";
}

/// Two beginnings of one attempt: the terms are the same, and the nodes' keys are others.
TEST(AttackTest, SignaturesOfAnEarlierBeginningOfTheSameAttemptAreOfNoUse) {
  MaskedRound before({4, 7, 9, 12}, 3), now({4, 7, 9, 12}, 3);
  for (auto* round : {&before, &now}) {
    round->train();
    for (const Place place : round->survivors()) round->sign(place);
  }
  EXPECT_EQ(digest_of(before.context), digest_of(now.context));
  auto replayed = before.server.unmask_request();
  expect_refusal([&] { now.nodes.at(0).unmask(replayed, verified, now.summed[0]); }, "not signed by client");
  EXPECT_TRUE(same(now.finish(), sum_of({4, 7, 9, 12})));
}

TEST(AttackTest, KeysAndSharesOfAnEarlierBeginningOfTheSameAttemptAreOfNoUse) {
  MaskedRound before({4, 7, 9, 12}, 3), now({4, 7, 9, 12}, 3);
  for (auto* round : {&before, &now}) round->exchange_keys();
  before.exchange_shares();
  auto keys = now.server.all_keys();
  keys[3] = before.server.all_keys()[3];  // client 12 is not there, and the server repeats what it said before
  for (const Place place : {0, 1, 2}) now.server.take_shares(now.nodes.at(place).take_keys(keys, verified));
  auto inbox = before.server.inbox_of(0);
  for (const Place place : {1, 2}) inbox.boxes[place] = now.nodes.at(place).attempt().shares->boxes.at(0);
  expect_refusal([&] { now.nodes.at(0).take_shares(inbox); }, "the shares of client 12 cannot be read");
  expect_refusal([&] { now.nodes.at(3).take_keys(keys, verified); }, "changed this node's keys");
}

TEST(AttackTest, AReplayedUploadOfAnotherBeginningStaysMasked) {
  MaskedRound round({4, 7, 9}, 3);
  round.exchange_keys();
  round.exchange_shares();
  MaskedRound other({4, 7, 9}, 3);
  other.train();
  for (const Place place : {0, 1}) round.server.take_upload(place, round.masked(place));
  round.masked(2);                               // it is not passed on
  round.server.take_upload(2, other.masked(2));  // the same client's upload under other masks
  EXPECT_FALSE(same(round.finish(), sum_of({4, 7, 9}))) << "masks of another attempt do not cancel";
}

TEST(AttackTest, ASecondSetInOneAttemptIsNotSigned) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train();
  round.sign(0);
  expect_refusal([&] { round.nodes.at(0).sign({true, true, true, true, false}, signer_of(4)); }, "a second set");
  EXPECT_EQ(round.nodes.at(0).sign(round.server.close(), signer_of(4)),
            round.nodes.at(0).sign(round.server.close(), signer_of(4)));
}

TEST(AttackTest, BothKindsOfSharesOfOneMemberAreNeverGiven) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train({4});
  for (const Place place : round.survivors()) round.sign(place);
  const auto reply = round.unmasked(0);
  for (Place place = 0; place < 5; ++place) EXPECT_NE(reply.seeds.contains(place), reply.secrets.contains(place));
  auto request = round.server.unmask_request();
  request.survivors[3] = false;  // now the other kind of client 12
  request.signatures.erase(3);
  expect_refusal([&] { round.nodes.at(0).unmask(request, verified, round.summed[0]); }, "did not sign");
  NodeRound again(round.nodes.at(0).attempt(), rules_of(4));
  expect_refusal([&] { again.unmask(request, verified, round.summed[0]); }, "did not sign");
}

TEST(AttackTest, TooFewOrForgedSignaturesUnmaskNothing) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.train();
  for (const Place place : round.survivors()) round.sign(place);
  auto request = round.server.unmask_request();
  request.signatures.erase(request.signatures.begin(), std::next(request.signatures.begin(), 3));
  expect_refusal([&] { round.nodes.at(0).unmask(request, verified, round.summed[0]); }, "signed by 2");
  request = round.server.unmask_request();
  request.signatures.at(1) = request.signatures.at(2);
  expect_refusal([&] { round.nodes.at(0).unmask(request, verified, round.summed[0]); }, "not signed by client 7");
  request = round.server.unmask_request();
  request.signatures[17] = "x";
  expect_refusal([&] { round.nodes.at(0).unmask(request, verified, round.summed[0]); }, "place 17");
  EXPECT_FALSE(round.summed[0].find("hospital", 3));
}

TEST(AttackTest, ASummedRoundIsNotSummedAgainInAnotherAttempt) {
  MaskedRound round({4, 7, 9, 12}, 3);
  round.train();
  EXPECT_TRUE(same(round.finish(), sum_of({4, 7, 9, 12})));
  expect_refusal([&] { NodeRound(context_of({4, 7, 9, 12}, 3, 1), rules_of(4), round.summed[0]); }, "spent");
  expect_refusal([&] { NodeRound(context_of({4, 7, 9}, 3), rules_of(4), round.summed[0]); }, "spent");
  auto next = context_of({4, 7, 9, 12}, 3);
  next.round += 1;
  EXPECT_EQ(NodeRound(next, rules_of(4), round.summed[0]).place(), 0);
}

TEST(AttackTest, TwoAttemptsInParallelGiveOneSumAtMost) {
  MaskedRound first({4, 7, 9, 12}, 3);
  first.train();
  const auto context = context_of({4, 7, 9, 12}, 3, 1);
  NodeRound second(context, rules_of(4), first.summed[0]);  // begun before the first attempt was unmasked
  first.finish();
  ServerRound server(context);
  std::map<Place, ListedRounds> lists;
  std::map<Place, NodeRound> others;
  for (Place place = 1; place < 4; ++place)
    others.emplace(place, NodeRound(context, rules_of(first.client(place)), lists[place]));
  server.take_keys(second.keys(signer_of(4)), verified);
  for (auto& [place, node] : others) server.take_keys(node.keys(signer_of(first.client(place))), verified);
  server.take_shares(second.take_keys(server.all_keys(), verified));
  for (auto& [place, node] : others) server.take_shares(node.take_keys(server.all_keys(), verified));
  second.take_shares(server.inbox_of(0));
  auto summand = summand_of(4);
  second.mask(summand);
  const Survivors all{true, true, true, true};
  second.sign(all, signer_of(4));
  UnmaskRequest request{.survivors = all};
  const auto text = text_of_survivors(digest_of(context), digest_of(second.attempt().keys), all);
  for (Place place = 0; place < 4; ++place) request.signatures[place] = signature_by(key_of(first.client(place)), text);
  expect_refusal([&] { second.unmask(request, verified, first.summed[0]); }, "spent");
}

TEST(AttackTest, AServerRefusesKeysSharesAndSignaturesThatAreNotAMembers) {
  MaskedRound round({4, 7, 9, 12}, 3);
  auto keys = round.nodes.at(0).keys(signer_of(7));
  expect_refusal([&] { round.server.take_keys(keys, verified); }, "not signed with its key");
  keys.place = 9;
  expect_refusal([&] { round.server.take_keys(keys, verified); }, "place 9");
  round.exchange_keys();
  auto shares = round.nodes.at(0).take_keys(round.server.all_keys(), verified);
  shares.boxes.erase(1);
  expect_refusal([&] { round.server.take_shares(shares); }, "shares for 2 members");
}

TEST(AttackTest, AServerRefusesUploadsOfAnotherSizeAndSharesOfAnotherKind) {
  MaskedRound round({4, 7, 9, 12}, 3);
  round.exchange_keys();
  round.exchange_shares();
  const RingVector small{at::zeros({4}, at::kInt), at::zeros({2}, at::kLong)};
  expect_refusal([&] { round.server.take_upload(0, small); }, "4 values");
  for (const Place place : {0, 1, 2}) round.server.take_upload(place, round.masked(place));
  round.server.close();
  for (const Place place : round.survivors()) round.sign(place);
  auto reply = round.unmasked(0);
  reply.secrets[1] = reply.seeds.at(1);
  expect_refusal([&] { round.server.take_unmask(0, reply); }, "another kind for client 7");
}

TEST(MaskedRoundTest, AnUploadAfterTheMemberWasRecoveredIsThrownAwayUnread) {
  MaskedRound round({4, 7, 9, 12, 20}, 3);
  round.exchange_keys();
  round.exchange_shares();
  const auto late = round.masked(2);
  for (const Place place : {0, 1, 3, 4}) round.server.take_upload(place, round.masked(place));
  for (const Place place : {0, 1, 3, 4}) {
    round.sign(place);
    EXPECT_FALSE(round.server.take_upload(2, late));
  }
  for (const Place place : {0, 1, 3, 4}) {
    round.server.take_unmask(place, round.unmasked(place));
    EXPECT_FALSE(round.server.take_upload(2, late)) << "its mask secret can be joined from now on";
  }
  EXPECT_TRUE(same(round.server.sum(), sum_of({4, 7, 12, 20})));
  expect_refusal([&] { round.nodes.at(2).sign(round.server.close(), signer_of(9)); }, "leaves this node out");
}

TEST(MaskedRoundTest, FiftyMembersOfWhomTenAreLostHaveTheRightSum) {
  MaskedRound round(ids_of(50), 26);
  round.train({0, 3, 7, 11, 12, 13, 30, 41, 48, 49});
  const auto left = round.surviving_clients();
  EXPECT_EQ(left.size(), 40U);
  EXPECT_TRUE(same(round.finish(), sum_of(left)));
}

TEST(MaskedRoundTest, AThousandRoundsOfFiveMembersHaveTheRightSums) {
  for (int i = 0; i < 1000; ++i) {
    MaskedRound round({1, 2, 3, 4, 5}, 3);
    round.train({static_cast<Place>(i % 5)});
    const auto clients = round.surviving_clients();
    ASSERT_TRUE(same(round.finish(), sum_of(clients))) << i;
  }
}

}  // namespace
}  // namespace evenkeel::secure
