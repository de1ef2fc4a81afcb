/// \file  A client of a federation on its own machine: a frozen base, rows that stay here, and an answer to each
/// envelope of the server. It does what it agreed to and nothing else; carrying envelopes is somebody else's
/// (flower/federation/node.h).
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
#include "flower/federation/node_memory.h"

namespace evenkeel {

struct NodeClientOptions {
  std::string model;                ///< folder of the base
  std::vector<std::string> data{};  ///< files of its training rows, or globs; empty: its share of those of `[data]`
  std::vector<std::string> test{};  ///< of its test rows
  std::optional<double> budget{};   ///< beta_c, whatever the server proposes
  double measure_s = 0;             ///< or: measured, so that a round of training takes no longer; 0: not
  int64_t threads = 0;              ///< 0: as the server's config says
  std::string device{};             ///< as model.device, of this machine; empty: the processor
  std::filesystem::path folder{};   ///< what it remembers between rounds
  std::filesystem::path
      adapters{};                  ///< the final adapter of each run goes there, in a folder of its own; empty: nowhere
  std::filesystem::path agreed{};  ///< a config: an offer that differs in how models are trained is refused
  /// Told, and asked by throwing, before anything is agreed to.
  std::function<void(const std::string& summary)> on_agreement{};
  OnProgress on_progress{};  ///< may throw Interrupted
};

/// Threads: one at a time.
class NodeClient {
 public:
  explicit NodeClient(NodeClientOptions options) : options_(std::move(options)) {}

  /// Whether a envelope may be received at all, before its payload is. \throws kData saying what was agreed on
  void consent(const Envelope& envelope, int64_t payload_bytes) const;
  /// The answer. \throws Error for what it does not agree to, or fails at: the server is told.
  Envelope answer(const Envelope& envelope);
  /// The answer to the last envelope was taken: what the client keeps between rounds counts from now on.
  void delivered();

 private:
  struct Agreement;

  Envelope consider(const Envelope& envelope);
  Envelope on_reply(const Envelope& envelope);
  Envelope work(const Envelope& envelope);
  Envelope keep(const Envelope& envelope);
  Envelope part(const Envelope& envelope);
  void require_agreed(const Task& task) const;

  NodeClientOptions options_;
  std::shared_ptr<Agreement> agreement_;
};

}  // namespace evenkeel
