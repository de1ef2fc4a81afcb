/// \file  Sends the heartbeat of a rank and monitors the heartbeats of other ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cluster/collective.h"

namespace evenkeel::cluster {

/// Describes a failure that ends the group.
struct PeerFailure {
  /// kLost: a rank sent no heartbeat within the timeout, or rank 0 has announced a newer group. kLeft: a member
  /// reported an error and left, or the store cannot be reached. kStop: a member was interrupted.
  enum class Kind { kNone, kLost, kLeft, kStop };
  Kind kind = Kind::kNone;
  std::string text{};  ///< for messages
};

/// Runs two detached threads. The first sends a heartbeat up to ten times a second over its own connection to the
/// store, and monitors other ranks. The second ends the process with exit code 1 when the first is blocked for more
/// than timeout_s + 5 seconds: if rank 0 is frozen, calls to its store never return. The object must live as long as
/// the process.
class Heartbeat {
 public:
  struct Settings {
    int rank = 0;
    std::string heartbeat_prefix,  ///< prefix of the key of a rank's heartbeat in the store
        newest_group_key;          ///< key that holds the number of the newest group
    /// Seconds without a heartbeat after which a rank is lost. `start_timeout_s` applies before its first heartbeat.
    double timeout_s = 60, start_timeout_s = 300;
  };

  Heartbeat(std::unique_ptr<RendezvousStore> store, Settings settings);
  /// Starts the threads.
  void start();

  /// Describes a group to monitor.
  struct Watch {
    std::vector<int> ranks{};   ///< ranks to monitor
    int64_t group = 0;          ///< number of the group; a new group is made after each failure
    std::string failure_key{};  ///< key under which a member reports why it leaves
  };
  /// Replaces the monitored group, clears the recorded failure and restarts silence() of its ranks. Threads: any.
  void watch(Watch watch);
  /// Returns the first failure of the monitored group, of kind kNone if there is none. Threads: any.
  PeerFailure failure() const;
  /// Returns the seconds since the rank's last heartbeat, or since the last watch() that includes the rank if that is
  /// later; 0 for a rank that was never monitored. Threads: any.
  double silence(int rank) const;
  /// Disables the second thread, which then never ends the process. Threads: any.
  void disable_guard() { guard_disabled_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Beat {
    int64_t count = 0;  ///< newest value of the rank's counter
    Clock::time_point last = Clock::now();
  };
  [[noreturn]] void send_heartbeats();
  [[noreturn]] void guard();
  void check_group();
  void check_rank(int rank, int64_t group);
  Watch watch() const;
  /// Records a failure of group number `group`, unless one is recorded already.
  void record(PeerFailure failure, int64_t group);

  const std::unique_ptr<RendezvousStore> store_;
  const Settings settings_;
  /// End of the first thread's last pass, in clock ticks.
  std::atomic<Clock::duration::rep> last_pass_{Clock::now().time_since_epoch().count()};
  std::atomic<bool> guard_disabled_ = false;
  mutable std::mutex mutex_;
  std::map<int, Beat> beats_;
  Watch watch_;
  PeerFailure failure_;
};

}  // namespace evenkeel::cluster
