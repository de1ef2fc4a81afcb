/// \file  Provides a node in a masked round, with a server and other members that do as they should, for tests. What
/// the server says may be changed. Messages are handed to the node without a network.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/plain/base64.h"
#include "base/plain/files.h"
#include "base/testing.h"
#include "fed/testing.h"
#include "flower/federation/agreed_terms.h"
#include "flower/federation/mask_messages.h"
#include "flower/federation/node_masks.h"
#include "secure/server_round.h"
#include "secure/testing.h"

namespace evenkeel::flower {

inline constexpr int kMembers = 4;

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
      context.roster.push_back({10 + place, keys_[static_cast<size_t>(place)].public_key().fingerprint(),
                                weights_[static_cast<size_t>(place)]});
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
            .weight = weights_[1], .roster = {10, 11, 12, 13}, .bits = 32, .exponent = terms_.exponent, .range = 0.5}};
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
  std::vector<double> weights_ = std::vector<double>(kMembers, 0.25);
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

inline void expect_contains(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

}  // namespace evenkeel::flower
