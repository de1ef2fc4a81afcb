// Tests of a node's part in masked rounds: what it keeps when it is killed, when it wipes, and what leaves it.
#include "flower/federation/node_masks_testing.h"

#include <sstream>

namespace evenkeel::flower {
namespace {

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

TEST_F(NodeMasksOf, AFileOfPeersWithoutKeysIsRefused) {
  options_.masking.peers = file("peers.pem").string();
  for (const auto* text : {"-----BEGIN PUBLIC KEY-----\nAAAA\n", "-----BEGIN CERTIFICATE-----\n", "nonsense\n", ""}) {
    write_file_atomic(file("peers.pem"), text);
    restart();
    EXPECT_THROW(node(), Error) << text;
  }
}

TEST_F(NodeMasksOf, WhatWasTrainedIsKeptForOtherMasksOfTheSameTaskUntilTheRoundIsCommitted) {
  auto asked = task();
  asked.payload.bytes = at::arange(9, at::kByte);
  const auto trained = std::make_shared<const fed::TrainedRound>();
  EXPECT_EQ(node().kept(asked), nullptr);
  node().keep(asked, trained);
  auto again = asked;
  std::get<fed::Train>(again.ask).summed->roster = {10, 11, 13};
  EXPECT_EQ(node().kept(again), trained) << "another attempt";
  auto other = asked;
  other.payload.bytes = at::arange(1, 10, at::kByte);
  EXPECT_EQ(node().kept(other), nullptr) << "another adapter";
  other = asked;
  other.round = 0;
  EXPECT_EQ(node().kept(other), nullptr);
  keys();
  node().committed(1);
  EXPECT_EQ(node().kept(asked), trained);
  node().committed(2);
  EXPECT_EQ(node().kept(asked), nullptr);
  keys(0);
  shares();
  inboxes();
  uploads();
  signatures({true, true, true, true});
  node().keep(asked, trained);
  EXPECT_EQ(node().kept(asked), trained);
  unmask();
  EXPECT_EQ(node().kept(asked), nullptr) << "the round is summed";
  node().keep(asked, trained);
  restart();
  EXPECT_EQ(node().kept(asked), nullptr);
  for (const auto& file : entries_of(options_.folder / "secure")) EXPECT_NE(file.extension(), ".safetensors");
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
