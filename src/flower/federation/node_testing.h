/// \file  Provides a node with rows of its own, and the server of a run that it may join, for tests. Requests are made
/// as the server makes them, and handed to the node without a network.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/files.h"
#include "fed/round/starting_adapter.h"
#include "fed/testing.h"
#include "flower/federation/node_client.h"
#include "flower/federation/rows_error.h"
#include "flower/federation/sessions.h"

namespace evenkeel::flower {

/// Returns lines of `count` rows of a choice between two wards.
inline std::string rows(std::string_view what, int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text += concat(R"({"prompt": "Which ward for )", what, ' ', i, R"(?", "completion": ")", i % 3 ? "surgery" : "eyes",
                   "\"}\n");
  return text;
}

/// A node with rows of its own, and the server of a run that it may join. The requests are the server's own ones, and
/// what a test makes of them.
class NodeGives : public testing::SmallRun {
 protected:
  NodeGives() {
    write("train.jsonl", rows("patient", 9));
    write("test.jsonl", rows("visitor", 14));
    options_ = {.model = (root() / "model").string(),
                .data = {path("train.jsonl")},
                .test = {path("test.jsonl")},
                .folder = folder_.path() / "memory",
                .on_agreement = [this](const std::string& summary) { summary_ = summary; }};
  }

  std::string path(std::string_view name) const { return (folder_.path() / name).string(); }
  void write(std::string_view name, const std::string& text) const { write_file_atomic(path(name), text); }

  /// The config of a run of two clients, of which the node is the second.
  fed::RunConfig config(std::initializer_list<std::string> more = {}, std::string_view method = "fedit") const {
    auto table = config::Table::parse(testing::kSmallRun, "unit.toml");
    for (const auto& setting : std::vector<std::string>{
             concat("model.path=\"", (root() / "model").string(), "\""), concat("method.name=\"", method, "\""),
             std::string("data.task=files"), std::string("data.limit=0"), std::string("clients.count=2"),
             std::string("clients.budgets=[]"), std::string("evaluate.limit=0"),
             std::string(R"(data.files={ score = "choice", options = ["eyes", "surgery"] })"),
             std::string(R"(clients.client=[{ budget = 0.25, data = ["a"], test = ["a"] },
                                         { budget = 0.5, data = ["a"], test = ["a"] }])")})
      table.set(setting);
    for (const auto& setting : more) table.set(setting);
    return fed::settle(without_rows(fed::ExperimentConfig::read(table)), {});
  }

  /// The server of `config`, with the numbers of rows that nodes of these rows state.
  static fed::Experiment server_of(const fed::RunConfig& config) {
    auto e = fed::make_experiment(config, fed::Purpose::kServe);
    const std::vector<size_t> examples{5, 9};
    e.server.clients = fed::make_clients(config, e.server.model, examples);
    return e;
  }

  Offer offer_of(const fed::Experiment& e, int64_t round = 0) const {
    Offer offer{.run = run_,
                .client = 1,
                .config = offered_text(e.server.config),
                .base = {},
                .sites = sites_digest(e.server.sites)};
    offer.round = round;
    offer.method = methods::digests_of(e.server.config->method.entry());
    return offer;
  }

  /// Returns what the node gives the server as the reason for refusing an envelope; nothing if it answers.
  virtual std::string said_to(const Envelope& envelope) {
    try {
      answer_ = node().answer(envelope);
      node().delivered();
      return "";
    } catch (const Error& error) {
      return reason_for_server(error);
    }
  }

  std::string offered(const Offer& offer) {
    return said_to({.run = run_, .kind = kOfferEnvelope, .header = record::write(offer).dump()});
  }
  std::string offered(std::initializer_list<std::string> settings, int64_t round = 0) {
    return offered(offer_of(server_of(config(settings)), round));
  }
  std::string asked(const fed::Task& task) {
    return said_to({run_, kTaskEnvelope, fed::header_of(task), task.payload.bytes});
  }

  NodeClient& node() { return node_ ? *node_ : node_.emplace(options_); }
  void restart() { node_.reset(); }
  Acceptance acceptance() const { return acceptance_in(answer_); }
  Json answered() const { return Json::parse(answer_.header); }

  std::string run_ = "abc";
  testing::TemporaryFolder folder_;
  NodeClientOptions options_;
  std::optional<NodeClient> node_{};
  Envelope answer_{};
  std::string summary_;
};

/// A node in a run, and the run's state.
class NodeInRun : public NodeGives {
 protected:
  void join(std::initializer_list<std::string> settings = {}, std::string_view method = "fedit") {
    experiment_.emplace(server_of(config(settings, method)));
    ASSERT_EQ(offered(offer_of(*experiment_)), "");
    state_ = fed::first_state(experiment_->server);
  }
  fed::Server& server() { return experiment_->server; }

  /// Sends the node the shared state, as before its first task.
  void synchronise() {
    const auto shared = server().full_sync(state_);
    EXPECT_EQ(said_to({run_, kUpdateEnvelope, fed::header_of(shared), shared.payload.bytes}), "");
  }

  fed::Task training(int64_t round = 0) {
    state_.round = round;
    return server().training_task(state_, server().clients[1], server().draw(state_));
  }
  fed::Task scoring(int64_t round, double budget = 1.0) {
    state_.round = round;
    auto task = server().scoring_task(state_, {.budget = budget}, {.task = "files"});
    task.client.id = 1;
    std::get<fed::Score>(task.ask).own_rows = true;
    return task;
  }
  /// An adapter other than the state's.
  lora::EncodedPayload another_adapter() {
    auto payload = state_.global;
    for (auto& [name, f] : payload.adapters) f.b = at::full_like(f.b, 0.01);
    return lora::encode(payload, lora::TransportDtype::kFloat32, server().sites);
  }

  std::optional<fed::Experiment> experiment_{};
  methods::ServerState state_;
};

}  // namespace evenkeel::flower
