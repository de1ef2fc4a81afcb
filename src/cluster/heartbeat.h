/// \file  The beat of a rank, and the watch over the others'.
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

/// What a rank hears about the others.
struct PeerFailure {
  enum class Kind { kNone, kLost, kLeft, kStop };
  Kind kind = Kind::kNone;
  std::string text{};
};

/// Two threads, never joined: one beats on a store of its own and watches, the other ends the process when the first is
/// stuck for longer than anything may take: a store whose keeper is frozen answers nobody.
class Heartbeat {
 public:
  struct Settings {
    int rank = 0;
    std::string beat, epoch;  ///< keys: in front of a rank; of the newest epoch
    double timeout_s = 60, start_timeout_s = 300;
  };

  Heartbeat(std::unique_ptr<RendezvousStore> store, Settings settings);
  void start();

  /// A group: whom to watch, and where its trouble is told.
  struct Watch {
    std::vector<int> ranks{};
    int64_t epoch = 0;
    std::string trouble_key{};
  };
  void watch(Watch watch);
  PeerFailure trouble() const;
  /// Seconds since the rank's last beat.
  double silence(int rank) const;
  void retire() { retired_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Beat {
    int64_t count = 0;
    Clock::time_point last = Clock::now();
  };
  [[noreturn]] void beat_for_ever();
  [[noreturn]] void guard();
  void look();
  void look_at(int rank, int64_t epoch);
  Watch watch() const;
  void raise(PeerFailure trouble, int64_t epoch);

  const std::unique_ptr<RendezvousStore> store_;
  const Settings settings_;
  std::atomic<Clock::duration::rep> last_round_{Clock::now().time_since_epoch().count()};
  std::atomic<bool> retired_ = false;
  mutable std::mutex mutex_;
  std::map<int, Beat> beats_;
  Watch watch_;
  PeerFailure trouble_;
};

}  // namespace evenkeel::cluster
