// Tests of a node's part in masked rounds: what it refuses, what it keeps when it is killed, and when it wipes.
#include "flower/federation/node_masks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "base/plain/base64.h"
#include "base/plain/files.h"
#include "base/testing.h"
#include "fed/testing.h"
#include "flower/federation/agreed_terms.h"
#include "flower/federation/mask_messages.h"
#include "secure/server_round.h"
#include "secure/testing.h"

namespace evenkeel::flower {
namespace {

constexpr int kMembers = 4;

/// A node at place 1 of a roster of four, and the other members, which do as they should.
class NodeMasksOf : public ::testing::Test {
 protected:
  NodeMasksOf() {
    for (int place = 0; place < kMembers; ++place) keys_.push_back(Key::make());
    keys_[1].save(file("node.pem"), KeyFormat::kPkcs8, "");
    options_.folder = folder_.path() / "memory";
    options_.masking.key = file("node.pem");
    offer_ = {.run = "abc", .client = 11, .config = config()->text(), .base = {}, .sites = {}};
  }

  fs::path file(std::string_view name) const { return folder_.path() / name; }

  static fed::RunConfig config() {
    auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
    for (const auto* setting : {"clients.count=20", "clients.budgets=[]", "clients.participation=0.2",
                                "secure_aggregation.mode=masks", "secure_aggregation.range=0.5"})
      table.set(setting);
    return fed::settle(fed::ExperimentConfig::read(table), {});
  }

  secure::RoundContext context(int64_t attempt = 0) const {
    const auto format = secure::RingFormat::of(32, 0.5, kMembers);
    secure::RoundContext context{.run = "abc",
                                 .config = digest_of_run(offer_.config),
                                 .round = 1,
                                 .attempt = attempt,
                                 .bits = 32,
                                 .exponent = format.exponent,
                                 .range = 0.5,
                                 .threshold = 3,
                                 .values = 5,
                                 .counts = 2};
    for (int place = 0; place < kMembers; ++place)
      context.roster.push_back({10 + place, keys_[static_cast<size_t>(place)].public_key().fingerprint(), 0.25});
    return context;
  }

  NodeMasks& node() {
    if (!node_) node_.emplace(options_, offer_, config());
    return *node_;
  }
  void restart() { node_.reset(); }

  OrderedJson said(const char* kind, const OrderedJson& header) {
    const auto answer = node().answer({.run = "abc", .kind = kind, .header = header.dump()});
    EXPECT_EQ(answer.kind, kind);
    said_[kind] = Json::parse(answer.header);
    return OrderedJson::parse(answer.header);
  }
  /// Returns why the node refuses a message; empty if it answers.
  std::string refusal(const char* kind, const OrderedJson& header) {
    try {
      said(kind, header);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kData) << error.what();
      return error.what();
    }
  }
  std::string refusal(const secure::RoundContext& context) {
    return refusal(kMaskKeysEnvelope, {{"context", secure::to_json(context)}});
  }
  std::string refusal(const std::function<void(secure::RoundContext&)>& change) {
    auto changed = context();
    change(changed);
    return refusal(changed);
  }

  secure::Sign signer(int place) {
    return [this, place](std::string_view text) { return keys_[static_cast<size_t>(place)].sign(text); };
  }
  template <typename T>
  static T read(const OrderedJson& json) {
    const Json copy = json;
    return secure::read_as<T>(JsonView(copy, "an answer"));
  }

  /// Phase 1 of an attempt, with all members.
  void keys(int64_t attempt = 0) {
    terms_ = context(attempt);
    server_.emplace(terms_);
    others_.clear();
    for (const int place : {0, 2, 3}) {
      const auto& member = terms_.roster[static_cast<size_t>(place)];
      const secure::NodeRules rules{.run = "abc", .config = terms_.config, .own_key = member.fingerprint};
      others_.emplace(place, secure::NodeRound(terms_, rules, summed_[place]));
      server_->take_keys(others_.at(place).keys(signer(place)), identities().verifier());
    }
    const auto answer = said(kMaskKeysEnvelope, {{"context", secure::to_json(terms_)}});
    server_->take_keys(read<secure::KeysOfMember>(answer.at("keys")), identities().verifier());
  }
  OrderedJson roster_message() {
    return {{"attempt", name_of(terms_)}, {"keys", to_json(server_->all_keys())}, {"identities", identities().pems()}};
  }
  void shares() {
    for (auto& [place, other] : others_)
      server_->take_shares(other.take_keys(server_->all_keys(), identities().verifier()));
    server_->take_shares(read<secure::SharesOfMember>(said(kMaskRosterEnvelope, roster_message()).at("shares")));
  }
  OrderedJson inbox_message() {
    return {{"attempt", name_of(terms_)}, {"inbox", secure::to_json(server_->inbox_of(1))}};
  }
  void inboxes() {
    for (auto& [place, other] : others_) other.take_shares(server_->inbox_of(place));
    EXPECT_EQ(said(kMaskSharesEnvelope, inbox_message()), OrderedJson::object());
  }
  static secure::RingVector summand_of(int place) {
    return {at::arange(5, at::kInt) + 100 * place, at::tensor({int64_t{place}, int64_t{7}}, at::kLong)};
  }
  /// Phase 3 without the members in `lost`.
  void uploads(const std::set<int>& lost = {}) {
    for (auto& [place, other] : others_) {
      auto summand = summand_of(place);
      other.mask(summand);
      if (!lost.contains(place)) server_->take_upload(place, summand);
    }
    auto own = summand_of(1);
    node().add(task(), own);
    server_->take_upload(1, own);
    server_->close();
  }
  fed::Task task() const {
    fed::Task task{.round = 1, .client = {}};
    task.ask = fed::Train{
        .summed = fed::SummedTerms{
            .weight = 0.25, .roster = {10, 11, 12, 13}, .bits = 32, .exponent = terms_.exponent, .range = 0.5}};
    return task;
  }
  OrderedJson set_message(const secure::Survivors& survivors) {
    return {{"set", secure::to_json(secure::SummedSet{secure::digest_of(terms_), survivors})}};
  }
  void signatures(const secure::Survivors& survivors) {
    for (auto& [place, other] : others_)
      if (survivors[static_cast<size_t>(place)])
        server_->take_signature(place, other.sign(survivors, signer(place)), identities().verifier());
    const auto own = said(kMaskSurvivorsEnvelope, set_message(survivors)).at("signature").get<std::string>();
    server_->take_signature(1, *from_base64(own), identities().verifier());
  }
  OrderedJson unmask_message() {
    return {{"attempt", name_of(terms_)},
            {"request", secure::to_json(server_->unmask_request())},
            {"identities", identities().pems()}};
  }
  void unmask() {
    for (auto& [place, other] : others_)
      if (server_->close()[static_cast<size_t>(place)])
        server_->take_unmask(place, other.unmask(server_->unmask_request(), identities().verifier(), summed_[place]));
    server_->take_unmask(1, read<secure::UnmaskReply>(said(kUnmaskEnvelope, unmask_message()).at("reply")));
  }
  Identities& identities() {
    for (const auto& key : keys_) identities_.add(key.public_key().pem());
    return identities_;
  }

  testing::TemporaryFolder folder_;
  std::vector<Key> keys_;
  NodeClientOptions options_{.model = {}};
  Offer offer_;
  std::optional<NodeMasks> node_{};
  std::map<std::string, Json> said_{};  // the last answer of each kind
  secure::RoundContext terms_{};
  std::optional<secure::ServerRound> server_{};
  std::map<int, secure::NodeRound> others_{};
  std::map<int, testing::ListedRounds> summed_{};
  Identities identities_;
};

void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

TEST_F(NodeMasksOf, ANodeThatIsKilledAfterEveryMessageGivesTheRightSum) {
  keys();
  restart();
  shares();
  restart();
  inboxes();
  restart();
  uploads({3});
  restart();
  signatures({true, true, true, false});
  restart();
  unmask();
  const auto sum = server_->sum();
  EXPECT_TRUE(at::equal(sum.values, 3 * at::arange(5, at::kInt) + 300));
  EXPECT_TRUE(at::equal(sum.counts, at::tensor({3, 21}, at::kLong)));
}

TEST_F(NodeMasksOf, RepeatedMessagesGetTheSameAnswers) {
  keys();
  const auto first = said(kMaskKeysEnvelope, {{"context", secure::to_json(terms_)}}).at("keys");
  EXPECT_EQ(first.at("mask"), OrderedJson(secure::to_json(server_->all_keys()[1])).at("mask"));
  shares();
  EXPECT_EQ(refusal(kMaskRosterEnvelope, roster_message()), "");
  inboxes();
  EXPECT_EQ(refusal(kMaskSharesEnvelope, inbox_message()), "");
  uploads();
  signatures({true, true, true, true});
  unmask();
  EXPECT_EQ(refusal(kUnmaskEnvelope, unmask_message()), "");
}

TEST_F(NodeMasksOf, TermsThatTheRunDoesNotHaveAreRefusedByName) {
  expect_contains(refusal([](auto& c) { c.run = "other"; }), "a masked round of run other");
  expect_contains(refusal([](auto& c) { c.config = "another"; }), "this node agreed to");
  expect_contains(refusal([](auto& c) { c.round = 2; }), "masks of round 3, agreed on: 2 rounds");
  expect_contains(refusal([](auto& c) { c.bits = 64; }), "a masked round of 64 bits");
  expect_contains(refusal([](auto& c) { c.range = 4; }), "range 4, agreed on: 32 and 0.5");
  expect_contains(refusal([](auto& c) { c.exponent += 1; }), "could overflow");
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
                  "the sum would show this node's upload");
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

TEST_F(NodeMasksOf, AFileOfPeersWithoutKeysIsRefused) {
  options_.masking.peers = file("peers.pem").string();
  for (const auto* text : {"-----BEGIN PUBLIC KEY-----\nAAAA\n", "-----BEGIN CERTIFICATE-----\n", "nonsense\n", ""}) {
    write_file_atomic(file("peers.pem"), text);
    restart();
    EXPECT_THROW(node(), Error) << text;
  }
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

TEST_F(NodeMasksOf, SecretsAreWipedWhenTheRoundIsCommittedAndNotBefore) {
  keys();
  const auto stored = options_.folder / "secure/attempt.json";
  node().committed(1);
  EXPECT_TRUE(is_file(stored));
  node().committed(2);
  EXPECT_FALSE(is_file(stored));
  keys(1);
  EXPECT_TRUE(is_file(stored));
  node().wipe();
  EXPECT_FALSE(is_file(stored));
}

TEST_F(NodeMasksOf, RoundingToSixteenBitsDependsOnASecretAndOnTheAttempt) {
  keys();
  const auto first = node().rounding_key(task());
  restart();
  EXPECT_EQ(node().rounding_key(task()), first);
  keys(1);
  EXPECT_FALSE(node().rounding_key(task()) == first);
}

/// Adds the fields of an answer as "message field"; members by place become "<place>".
void add_answer_fields(const Json& json, const std::string& path, std::set<std::string>& fields) {
  if (!json.is_object() || json.empty()) {
    fields.insert(path);
    return;
  }
  for (const auto& [key, value] : json.items()) {
    const bool is_place = key.find_first_not_of("0123456789") == key.npos;
    add_answer_fields(value, concat(path, path.ends_with(' ') ? "" : ".", is_place ? "<place>" : key), fields);
  }
}

/// Returns the fields of the table of masks in docs/threat-model.md.
std::set<std::string> fields_of_masks_in_the_page() {
  const auto page = read_file(fs::path(EVENKEEL_SOURCE_DIR) / "docs/threat-model.md");
  const auto begin = page.find("<!-- fields of masks -->"), end = page.find("<!-- end of fields of masks -->");
  std::set<std::string> fields;
  std::istringstream table(page.substr(begin, end - begin));
  for (std::string line, message; std::getline(table, line);) {
    if (!line.starts_with("| `")) continue;
    const auto cell_end = line.find('|', line.find('|', 1) + 1);
    std::vector<std::string> names;
    for (size_t at = line.find('`'); at < cell_end; at = line.find('`', at + 1)) {
      const auto close = line.find('`', at + 1);
      names.push_back(line.substr(at + 1, close - at - 1));
      at = close;
    }
    for (size_t i = 1; i < names.size(); ++i) fields.insert(concat(names[0], ' ', names[i]));
    if (names.size() == 1) fields.insert(names[0] + " ");
  }
  return fields;
}

TEST_F(NodeMasksOf, WhatLeavesTheNodeIsInTheThreatModel) {
  keys();
  shares();
  inboxes();
  uploads({3});
  signatures({true, true, true, false});
  unmask();
  std::set<std::string> left;
  for (const auto& [kind, header] : said_) add_answer_fields(header, concat(kind, ' '), left);
  EXPECT_EQ(left, fields_of_masks_in_the_page());
}

TEST_F(NodeMasksOf, OptionsAndRunHaveToGoTogether) {
  const auto refused = [&](const NodeClientOptions& options, const fed::RunConfig& config) {
    try {
      require_masks_as_agreed(options, config);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto open = config().with([](fed::ExperimentConfig& values) { values.secure_aggregation = {}; });
  EXPECT_EQ(refused(options_, config()), "");
  EXPECT_EQ(refused(options_, open), "");
  auto peers = options_;
  peers.masking.peers = "peers.pem";
  expect_contains(refused(peers, open), "is not masks, and this node was started with --peers");
  auto keyless = options_;
  keyless.masking.key.clear();
  expect_contains(refused(keyless, config()), "node --key");
  auto private_rows = options_;
  private_rows.privacy.epsilon = 3;
  expect_contains(refused(private_rows, config()), "secure_aggregation.reports), which this node withholds");
  const auto sums_alone = config().with([](auto& values) { values.secure_aggregation.reports = false; });
  EXPECT_EQ(refused(private_rows, sums_alone), "");
}

TEST(RunDigest, IsTheSameForConfigsThatDifferInTheServersOwnKeys) {
  auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
  const auto digest = [&] { return digest_of_run(fed::settle(fed::ExperimentConfig::read(table), {})->text()); };
  const auto first = digest();
  for (const auto* setting : {"clients.deadline=30", "train.rounds=7", "evaluate.budgets=[0.5]"}) table.set(setting);
  EXPECT_EQ(digest(), first);
  table.set("train.batch_size=3");
  EXPECT_NE(digest(), first);
}

}  // namespace
}  // namespace evenkeel::flower
