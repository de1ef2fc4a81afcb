/// \file  Implements a client on its own machine, with its own base and rows. It answers the server's envelopes
/// (flower/federation/envelope.h) and does only what it agreed to. flower/federation/node.h transports the envelopes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fed/run/experiment.h"
#include "flower/federation/agreement.h"
#include "flower/federation/envelope.h"
#include "flower/federation/owner_limits.h"
#include "flower/federation/node_memory.h"

namespace evenkeel::flower {

/// The options of a node's client.
struct NodeClientOptions {
  std::string model;  ///< folder of the base
  /// Files, globs or folders of the client's training rows. If the run divides the rows of `[data]` among clients: the
  /// folder of the files of `[data]`. Empty: generated rows.
  std::vector<std::string> data{};
  std::vector<std::string> test{};   ///< files, globs or folders of test rows
  std::optional<double> budget{};    ///< budget beta_c; replaces the server's proposal
  double measure_s = 0;              ///< above 0: choose the largest budget whose round takes at most this many seconds
  int64_t threads = 0;               ///< number of threads; 0: as in the server's config
  std::string device{};              ///< as model.device, for this machine; empty: CPU
  std::filesystem::path folder{};    ///< folder for the client's state between rounds
  std::filesystem::path adapters{};  ///< folder for final adapters, one subfolder per run; empty: not stored
  /// A config file: offers that train otherwise, or whose scores show other things, are refused.
  std::filesystem::path agreed{};
  OwnerLimits limits{};  ///< what the client gives at most
  /// Called with a summary of what will be sent, before the client accepts an offer. It refuses by throwing.
  std::function<void(const std::string& summary)> on_agreement{};
  fed::OnProgress on_progress{};  ///< may throw Interrupted
};

/// Reads the config that a node agrees to (NodeClientOptions::agreed).
/// \throws kIo, kConfig when it or its chat template cannot be read
fed::ExperimentConfig agreed_config(const std::filesystem::path& file);

/// Answers envelopes of a server. Threads: one at a time.
class NodeClient {
 public:
  explicit NodeClient(NodeClientOptions options) : options_(std::move(options)) {}

  /// Checks kind and size of an envelope before its payload is received. \throws kData when it is refused, with the
  /// agreed limit
  void consent(const Envelope& envelope, int64_t payload_bytes) const;
  /// Answers an envelope; a task is carried out before this returns. \throws Error when it refuses or fails; the caller
  /// reports this to the server
  Envelope answer(const Envelope& envelope);
  /// Reports that the server took the last answer. The client's state after this round becomes valid.
  void delivered();

 private:
  struct Agreement;
  struct Joined;

  Envelope consider(const Envelope& envelope);
  Envelope on_reply(const Envelope& envelope);
  Envelope work(const Envelope& envelope);
  Envelope keep(const Envelope& envelope);
  Envelope part(const Envelope& envelope);
  Envelope join_run(Joined joined, class AgreedRun agreed);
  void admit(const fed::Task& task);
  void admit_score(const fed::Score& score);

  NodeClientOptions options_;
  std::shared_ptr<Agreement> agreement_;
};

}  // namespace evenkeel::flower
