/// \file  A client of a federation on its own machine: a frozen base, rows that stay here, and an answer to each letter
/// of the server. It does what it agreed to and nothing else; carrying letters is somebody else's
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

  /// Whether a letter may be received at all, before its payload is. \throws kData saying what was agreed on
  void consent(const Letter& letter, int64_t payload_bytes) const;
  /// The answer. \throws Error for what it does not agree to, or fails at: the server is told.
  Letter answer(const Letter& letter);
  /// The answer to the last letter was taken: what the client keeps between rounds counts from now on.
  void delivered();

 private:
  struct Agreement;

  Letter consider(const Letter& letter);
  Letter hear(const Letter& letter);
  Letter work(const Letter& letter);
  Letter keep(const Letter& letter);
  Letter part(const Letter& letter);
  void require_agreed(const Task& task) const;

  NodeClientOptions options_;
  std::shared_ptr<Agreement> agreement_;
};

}  // namespace evenkeel
