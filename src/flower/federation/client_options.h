/// \file  Declares the options of a node's client.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fed/exchange/client.h"
#include "flower/federation/owner_limits.h"

namespace evenkeel::flower {

/// Differential privacy of the node's single rows (flower/federation/node_privacy.h).
struct NodePrivacyOptions {
  double epsilon = 0, delta = 0;  ///< the budget of all runs; epsilon 0: no privacy
  double clip = 0;                ///< largest norm of the gradient of one row
  int64_t lot = 0;                ///< expected rows per step; 0: rows per step of the run
  double noise = 0;               ///< noise multiplier; 0: the least that keeps all rounds of a run within the budget

  /// Returns true if any option is set.
  bool is_on() const { return epsilon != 0 || delta != 0 || clip != 0 || lot != 0 || noise != 0; }
};

/// The owner's budget in runs that protect whole clients by their own noise (flower/federation/node_noise.h).
struct ClientBudgetOptions {
  double epsilon = 0, delta = 0;  ///< for all runs together; 0: taken from the config of the run

  /// Returns true if the owner asks for it: then runs without such noise are refused.
  bool is_on() const { return epsilon != 0 || delta != 0; }
};

/// The nodes with which the node masks its uploads ([secure_aggregation]).
struct MaskingOptions {
  static constexpr int64_t kFewest = 3;
  std::filesystem::path key{};  ///< the node's private key, which signs; empty: it takes part in no masked round
  std::string peers{};          ///< public keys of the other nodes (read_peers()); empty: any node
  int64_t min_peers = kFewest;  ///< fewest members of a round, and of its sum, itself included

  /// Returns true if the owner asks for masks: then runs without them are refused.
  bool is_required() const { return !peers.empty() || min_peers != kFewest; }
};

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
  /// A config file (require_agreed_config()): offers that train differently, or whose scores show other things, are
  /// refused; empty: any offer may be accepted.
  std::filesystem::path agreed{};
  NodePrivacyOptions privacy{};
  MaskingOptions masking{};
  ClientBudgetOptions client_budget{};
  OwnerLimits limits{};  ///< what the client gives at most
  /// Called with a summary of what will be sent, before the client accepts an offer. It refuses by throwing. It is not
  /// called for an offer that repeats an accepted one with the same summary: the server sends the offer when the node
  /// joins, and again when the run begins.
  std::function<void(const std::string& summary)> on_agreement{};
  fed::OnProgress on_progress{};  ///< may throw Interrupted
};

}  // namespace evenkeel::flower
