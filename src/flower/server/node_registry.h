/// \file  The coordinator's nodes: which key has which id, who is online, what each may still ask for. Kept in
/// nodes.json, so that who was known before a restart is known after it.
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

namespace evenkeel::wire {

/// Any thread may call.
class Registry {
 public:
  /// \throws kCheckpoint when nodes.json of the folder is damaged
  explicit Registry(const CoordinatorOptions& options);

  uint64_t run_id() const { return run_id_; }
  /// Whether the key may call at all: it is allowed, or any is.
  bool accepts(const PublicKey& key) const;
  std::optional<uint64_t> id_of(const PublicKey& key) const;

  /// \throws Refusal 412: only allowed keys have nodes here, or there are enough of them
  uint64_t add(const PublicKey& key);
  /// \throws Refusal 412/2004 when the node is online already, 400/2003 for an interval outside of [10, 1800]
  void activate(uint64_t node, double heartbeat_s);
  void sign_off(uint64_t node);
  void remove(uint64_t node);
  void beat(uint64_t node, double heartbeat_s);
  /// A call of the node: it is there, whatever it says of beats.
  void seen(uint64_t node, const std::string& program);

  /// Takes a call out of what the node may ask for; false when nothing is left.
  bool charge(uint64_t node);
  void give_back(uint64_t node);  ///< the call was one that it was asked for
  /// Counts, and says in the log, at most once in ten seconds for each node.
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
    double calls = 0;  ///< that it may still make
    std::string program{};
    uint64_t refused = 0;
    std::string last_refusal{};
  };
  bool online(const Node& node) const;
  uint64_t insert(const PublicKey& key);  // with mutex_
  std::string name_of(const PublicKey& key) const;
  void load();
  void save() const;  // with mutex_

  const std::filesystem::path file_;
  const NodeLimits limits_;
  const bool open_;
  const size_t most_;
  std::map<std::string, std::string> allowed_{};  // names by key
  uint64_t run_id_ = 0;
  mutable std::mutex mutex_;
  std::map<uint64_t, Node> nodes_{};
  std::map<std::string, uint64_t> ids_{};  // by key
};

}  // namespace evenkeel::wire
