/// \file  A whole federation in one process, for tests: a server that listens on loopback, and nodes with their own
/// keys, bases and rows in threads of their own. What a node sends may be changed.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "fed/run/stored_records.h"
#include "fed/run/training_run.h"
#include "fed/store/run_request.h"
#include "fed/testing.h"
#include "flower/federation/coordinator_grid.h"
#include "flower/federation/node.h"
#include "flower/federation/serve.h"

namespace evenkeel::flower {

/// What a node does to an envelope before it sends it.
using Edit = std::function<void(Envelope& envelope)>;
/// Thrown by an Edit: the node's process ends before it sends the envelope, and another one starts with its files.
struct Killed {};

class Federation : public testing::SmallRun {
 protected:
  static fed::RunRequest request(std::string_view method, const fs::path& out,
                                 std::initializer_list<std::string> more = {"threads=1"}) {
    const auto file = root() / "run.toml";
    write_file_atomic(file, testing::kSmallRun);
    fed::RunRequest request{.file = file, .settings = more, .out = out.string()};
    for (const auto& setting :
         {concat("model.path=\"", (root() / "model").string(), "\""), concat("method.name=\"", method, "\""),
          std::string("evaluate.tasks=[\"builtin:sizes\"]")})
      request.settings.push_back(setting);
    return request;
  }

  fs::path key(int64_t node) {
    const auto file = folder_.path() / concat("node-", node, ".pem");
    if (!path_exists(file)) make_key(file);
    return file;
  }

  NodeOptions link(int64_t node, int port) {
    return {.server = {.host = "127.0.0.1", .port = port, .insecure = true},
            .key_file = key(node),
            .folder = folder_.path() / concat("link-", node),
            .heartbeat_s = 10,
            .poll_s = 0.02,
            .stop = [this] { return stop_.load(); }};
  }

  NodeClientOptions client(int64_t node) {
    NodeClientOptions options{.model = (root() / "model").string(), .folder = folder_.path() / concat("memory-", node)};
    if (change_) change_(node, options);
    return options;
  }

  /// A node that takes part as it should, but for what `edit` does to its replies.
  void play(int64_t node, int port, const Edit& edit) {
    auto options = link(node, port);
    if (!edit && node != patient_) return run_node({.link = options, .client = client(node), .once = true});
    options.stop = [this] { return stop_ || over_; };
    if (!edit) return run_node({.link = options, .client = client(node)});
    for (bool ended = false; !ended;) try {
        play(node, options, edit);
        ended = true;
      } catch (const Killed&) {  // NOLINT(bugprone-empty-catch): the next process begins
      }
  }

  /// One process of a node whose envelopes are edited.
  void play(int64_t node, const NodeOptions& options, const Edit& edit) {
    NodeLink wire(options);
    NodeClient own(client(node));
    wire.join();
    for (bool over = false; !over && !stop_ && !over_;) {
      const auto instruction = wire.poll();
      if (!instruction) {
        wire.rest();
        continue;
      }
      IncomingEnvelope incoming("the server",
                                [&](const Envelope& envelope, int64_t bytes) { return own.consent(envelope, bytes); });
      wire.receive(*instruction, incoming.allocator());
      auto envelope = own.answer(incoming.envelope());
      over = envelope.kind == kShutdownEnvelope;
      edit(envelope);
      try {
        wire.reply(*instruction, EnvelopePacker().content(envelope));
        own.delivered();
      } catch (const Error& error) {  // it came too late
        own.not_delivered(error.what());
      }
    }
    wire.leave(2);
  }

  /// A run of three clients. \param edits  by node
  ServedRun served(const fed::RunRequest& request, const std::map<int64_t, Edit>& edits = {}, int64_t count = 3) {
    std::vector<std::jthread> nodes;
    const auto listen = [&](const fs::path& folder) -> std::unique_ptr<Grid> {
      auto grid = std::make_unique<CoordinatorGrid>(
          CoordinatorOptions{.port = 0, .insecure = true, .open = true, .folder = folder});
      if (prepare_) prepare_(folder);
      for (int64_t node = 0; node < count; ++node)
        nodes.emplace_back([this, node, port = grid->port(), edit = edits.contains(node) ? edits.at(node) : Edit{}] {
          try {
            while (!edit && !admitted_() && !stop_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            play(node, port, edit);
          } catch (const Stopped&) {
            EXPECT_TRUE(over_) << "node " << node;
          } catch (const std::exception& error) {
            if (node == failing_)
              failure_ = error.what();
            else
              ADD_FAILURE() << "node " << node << ": " << error.what();
          }
        });
      return grid;
    };
    try {
      auto run = serve({.request = request, .resume = resume_}, listen);
      over_ = true;
      return run;
    } catch (...) {
      stop_ = true;
      throw;
    }
  }

  static std::vector<scoring::TaskScore> local(const fed::RunRequest& request) {
    auto run = fed::begin_run(request);
    return fed::complete_run(run.experiment.server, run.experiment.fabric, run.folder);
  }

  static std::vector<fed::RoundRecord> rounds(const fs::path& folder) {
    std::vector<fed::RoundRecord> records;
    const auto lines = fed::read_rounds(folder);
    for (const auto& line : lines.whole().lines) records.push_back(record::read<fed::RoundRecord>(line.view()));
    return records;
  }

  static void expect_same_runs(const fs::path& one, const fs::path& other) {
    const auto* adapter = "adapter/adapter_model.safetensors";
    EXPECT_EQ(sha256_file(one / adapter), sha256_file(other / adapter));
    const auto x = rounds(one), y = rounds(other);
    ASSERT_EQ(x.size(), y.size());
    for (size_t t = 0; t < x.size(); ++t) EXPECT_EQ(testing::without_seconds(x[t]), testing::without_seconds(y[t]));
  }

  testing::TemporaryFolder folder_;
  std::atomic<bool> stop_ = false;
  std::function<bool()> admitted_ = [] { return true; };  // whether nodes that do as they should may begin
  std::function<void(int64_t node, NodeClientOptions& options)> change_{};
  bool resume_ = false;
  std::function<void(const fs::path& folder)> prepare_{};  // changes the folder of the federation
  int64_t patient_ = -1;                                   // the node that stays after its run, or -1
  int64_t failing_ = -1;                                   // the node that ends with an error, or -1
  std::string failure_{};                                  // its error
  std::atomic<bool> over_ = false;  // true: the server has ended; a node that it never let in is not told so
};

/// Calls `change` with a copy of the payload of a reply, and puts the result into the envelope.
inline void change_upload(Envelope& envelope, const std::function<void(lora::Payload&)>& change) {
  if (envelope.kind != kReplyEnvelope) return;
  auto payload = lora::received(lora::decode(envelope.payload_N, "a test"));
  for (auto& [name, f] : payload.adapters)
    for (auto* tensor : {&f.a, &f.b})
      if (tensor->defined()) *tensor = tensor->clone();
  change(payload);
  envelope.payload_N = lora::encode(payload, lora::TransportDtype::kFloat32, {}).bytes;
}

/// Changes the report of a reply to a training task.
inline void change_report(Envelope& envelope, const std::function<void(OrderedJson& report)>& change) {
  if (envelope.kind != kReplyEnvelope) return;
  auto json = OrderedJson::parse(envelope.header);
  change(json["report"]);
  envelope.header = json.dump();
}

}  // namespace evenkeel::flower
