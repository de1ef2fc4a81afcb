/// \file  Stores the coordinator's nodes: their keys and ids, whether they are online, and their rate limits. Keys, ids
/// and the run id are stored in nodes.json, so they survive a restart.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "flower/format/keys.h"
#include "flower/server/coordinator_options.h"

namespace evenkeel::flower {

/// The nodes of a coordinator. Thread-safe: any thread may call.
class Registry {
 public:
  /// Reads nodes.json, and adds the allowed keys that are new. \throws kCheckpoint when the file is damaged
  explicit Registry(const CoordinatorOptions& options);

  uint64_t run_id() const { return run_id_; }
  /// Returns true if the key may call: it is on the allow-list, or CoordinatorOptions::open is set.
  bool accepts(const PublicKey& key) const;
  std::optional<uint64_t> id_of(const PublicKey& key) const;

  /// Registers a key and returns its node id. \throws Refusal 412 if only allowed keys may join, or too many nodes are
  /// registered
  uint64_t add(const PublicKey& key);
  /// Marks a node as online. \throws Refusal 412/2004 when it is online already, 400/2003 for an interval outside of
  /// [10, 1800] s
  void activate(uint64_t node, double heartbeat_s);
  /// Marks a node as offline.
  void sign_off(uint64_t node);
  /// Removes a node's registration. \throws Refusal 412 if only allowed keys may join
  void remove(uint64_t node);
  /// Sets the interval of a node's heartbeats in seconds. A value that is not in 10 to 1800 is ignored. seen() records
  /// the heartbeat itself.
  void beat(uint64_t node, double heartbeat_s);
  /// Records a call of the node, which counts as online from now on. \param program  package and version
  void seen(uint64_t node, const std::string& program);

  /// Counts a call against the node's rate limit; returns false if the limit is exceeded.
  bool charge(uint64_t node);
  void give_back(uint64_t node);  ///< reverses charge(); used for calls that transfer objects, which are not limited
  /// Counts a refused call. Logs it at most once in ten seconds for each node.
  void refused(uint64_t node, const std::string& why);

  bool online(uint64_t node) const;
  bool knows(uint64_t node) const;
  std::string name(uint64_t node) const;
  std::vector<NodeInfo> nodes() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Node {
    PublicKey key;
    std::string name;
    bool active = false;
    double heartbeat_s = 30, last_beat = 0;
    Clock::time_point beat_at{}, told_at{}, charged_at{};
    double calls = 0;  ///< calls left before the rate limit
    std::string program{};
    uint64_t refused = 0;
    std::string last_refusal{};
  };
  bool online(const Node& node) const;
  uint64_t insert(const PublicKey& key);  // requires mutex_
  std::string name_of(const PublicKey& key) const;
  void load();
  void save() const;  // with mutex_

  const std::filesystem::path file_;
  const NodeLimits limits_;
  const bool open_;
  const size_t most_;
  std::map<std::string, std::string> allowed_{};  // names, by key
  uint64_t run_id_ = 0;
  mutable std::mutex mutex_;
  std::map<uint64_t, Node> nodes_{};
  std::map<std::string, uint64_t> ids_{};  // by key
};

}  // namespace evenkeel::flower
