/// \file  Stores the coordinator's nodes: their keys and ids, whether they are online, and their rate limits. Keys, ids
/// and the run id are stored in nodes.json, so they survive a restart.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "flower/format/keys.h"
#include "flower/server/coordinator_options.h"

namespace evenkeel::flower {

/// The nodes of a coordinator. Thread-safe: any thread may call. A Refusal (flower/http/http_server.h) is answered to
/// the node. "412/2001" is HTTP status 412 with code 2001 of Flower's API (ApiErrorCode of flwr 1.41), which tells
/// Flower's nodes what to do. Functions that change a node throw Refusal 401 for an id that is not registered.
class Registry {
 public:
  /// Reads nodes.json, and adds the allowed keys that are new. \throws kCheckpoint when the file is damaged
  explicit Registry(const CoordinatorOptions& options);

  uint64_t run_id() const { return run_id_; }
  /// Returns true if the key may call: it is on the allow-list, or CoordinatorOptions::open is set.
  bool accepts(const PublicKey& key) const;
  /// As accepts(), by the key's fingerprint.
  bool accepts_fingerprint(const std::string& fingerprint) const;
  /// Replaces the list of allowed keys. New keys are registered; removed ones keep their id and may not call any more.
  /// \return the nodes whose keys were removed
  std::vector<uint64_t> allow(const std::vector<AllowedKey>& keys);
  std::optional<uint64_t> id_of(const PublicKey& key) const;  ///< nothing for a key that is not registered

  /// Registers a key and returns its node id; a registered key keeps its id.
  /// \throws Refusal 412/2001 (registration is disabled) unless CoordinatorOptions::open is set, also for an allowed
  ///         key, which is registered from the start; 412 when too many nodes are registered
  uint64_t add(const PublicKey& key);
  /// Marks a node as online. \param heartbeat_s  interval of its heartbeats in seconds
  /// \param instance  the process that acts as the node from now on (SignedHeaders::instance); empty: not known
  /// \param before    called before others see the node as online, and not when it is refused; it calls no function of
  ///                  this object
  /// \throws Refusal 412/2004 (activation failed) when it is online already; 400/2003 (invalid interval) for an
  ///         interval that is not in 10 to 1800
  void activate(
      uint64_t node, double heartbeat_s, const std::string& instance, const std::function<void()>& before = [] {});
  /// Marks a node as offline.
  void sign_off(uint64_t node);
  /// Removes a node's registration. \throws Refusal 412/2002 (unregistration is disabled) unless
  /// CoordinatorOptions::open is set
  void remove(uint64_t node);
  /// Sets the interval of a node's heartbeats in seconds. A value that is not in 10 to 1800 is ignored.
  void set_heartbeat_interval(uint64_t node, double heartbeat_s);
  /// Records the time of a call. The node counts as online until two intervals have passed without another call.
  /// \param program   package and version of the caller; the first one that is not empty is kept
  /// \param instance  as activate() has it
  /// \throws Refusal 409 when another process has joined with the node's key since
  void record_call(uint64_t node, const std::string& program, const std::string& instance);

  /// Counts a call against the node's rate limit; returns false if the limit is exceeded.
  bool charge(uint64_t node);
  /// Reverses charge(), for calls that transfer objects, which are not limited. Does nothing for an unknown id.
  void uncharge(uint64_t node);
  /// Counts a refused call. Logs it at most once in ten seconds for each node. Does nothing for an unknown id.
  void record_refusal(uint64_t node, const std::string& why);

  /// Returns true if the node is online; false for an unknown id.
  bool online(uint64_t node) const;
  /// Returns the name on the list of allowed keys, else the key's fingerprint; "?" for an unknown id.
  std::string name(uint64_t node) const;
  /// Returns the registered nodes whose keys may call (accepts()).
  std::vector<NodeInfo> nodes() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Node {
    PublicKey key;
    std::string name;
    bool active = false;
    double heartbeat_s = 30;        ///< interval of its heartbeats
    double last_call = 0;           ///< time of its last call, seconds since 1970
    Clock::time_point called_at{},  ///< the same on a clock that is never set
        warned_at{},                ///< when a refusal was last logged
        charged_at{};               ///< when `calls` was last brought up to date
    double calls = 0;               ///< calls left before the rate limit
    std::string program{}, instance{};
    uint64_t refused = 0;
    std::string last_refusal{};
  };
  bool online(const Node& node) const;
  uint64_t insert(const PublicKey& key);                // REQUIRES mutex_
  Node& registered(uint64_t node);                      // REQUIRES mutex_
  std::string name_of(const PublicKey& key) const;      // REQUIRES mutex_
  void take_list(const std::vector<AllowedKey>& keys);  // REQUIRES mutex_
  void load();
  void save() const;  // REQUIRES mutex_

  const std::filesystem::path file_;
  const NodeLimits limits_;
  const bool open_;
  const size_t most_;
  uint64_t run_id_ = 0;
  mutable std::mutex mutex_;
  struct Permit {
    std::string name, replaces;
  };
  std::map<std::string, Permit> allowed_{};  // by key
  std::set<std::string> fingerprints_{};     // of the allowed keys
  std::map<uint64_t, Node> nodes_{};
  std::map<std::string, uint64_t> ids_{};  // by key
};

}  // namespace evenkeel::flower
