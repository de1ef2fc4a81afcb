/// \file  Represents this process as a rank of a run: access to the shared store, failure detection and the current
/// group. A separate thread sends heartbeats and monitors other ranks, so a failure is detected without a collective
/// operation. Destruction does not wait for other ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/collective.h"
#include "cluster/launch.h"
#include "cluster/options.h"

namespace evenkeel::cluster {

class Heartbeat;

/// Returns the name of a key in the store. It contains the launcher's restart number and the group's number, so keys of
/// earlier restarts and groups are not read.
/// \param attempt  Launch::attempt
/// \param group    number of the group; negative: a key for all groups
std::string key_of(const std::string& attempt, int64_t group, const std::string& key);

/// The membership of this process in a group: store, heartbeat and failures. For collective operations, together()
/// passes a Collective (cluster/collective.h) to its callback. Not thread-safe.
class ProcessGroup {
 public:
  /// Connects to the store, or hosts it, and starts the heartbeat. \throws kIo when the store cannot be reached.
  ProcessGroup(const Launch& launch, const ClusterOptions& options);

  int rank() const { return launch_.rank; }
  int launched() const { return launch_.size; }     ///< number of ranks at start
  bool leads() const { return launch_.rank == 0; }  ///< true on rank 0
  const ClusterOptions& options() const { return options_; }
  int64_t group_number() const { return group_number_; }  ///< number of the group, from 0
  /// Returns the ranks of the group in ascending order. A lost rank stays in the list until regroup().
  const std::vector<int>& members() const { return members_; }
  int group_rank() const;  ///< index of this rank in members()

  /// Write and read a key of the current group. read() returns nullopt if the key is not set.
  /// \throws kIo when the store cannot be reached.
  void post(const std::string& key, const std::string& value);
  std::optional<std::string> read(const std::string& key);
  /// Waits for a key without a time limit and returns its value. \throws as check().
  std::string wait_for(const std::string& key);
  /// Checks for failures of the group. \throws kIo naming the lost rank or the error of another rank, Interrupted when
  /// a rank was interrupted.
  void check();
  /// Sleeps 2 ms, for loops that poll the store.
  static void pause();
  /// Reports to the other ranks why this rank leaves. Only the first report in a group is stored. After storing its
  /// report, rank 0 waits 0.4 s, so that the other ranks can read it before the store is gone.
  void tell(const std::string& failure) noexcept;
  /// Reports that this rank was interrupted, as tell().
  void tell_stop(const std::string& why) noexcept;

  /// Forms the group of members(), which at first are all launched ranks. Waits for them. A single member needs no
  /// group. \throws as make_group().
  void form_group();
  /// Calls check(), then runs `work` with the group. If `work` throws an Error, broken() is true from then on, and the
  /// Error is rethrown with "rank R, WHAT: " in front of its text. \throws kInternal for a group of one member, which
  /// has no Collective; as check() and `work`
  void together(const std::string& what, const std::function<void(Collective& group)>& work);

  /// Returns true when the group cannot be used any more: check() found a lost rank, or together() failed. regroup() is
  /// needed then.
  bool broken() const { return broken_; }
  /// Forms a new group of rank 0 and all ranks that are not lost. Each of them must call it. \throws kIo when rank 0 is
  /// lost or this rank came too late; as check() when a rank has left or was interrupted.
  void regroup();
  /// Disables the thread that ends this process (exit code 1) when the store has not answered for timeout + 5 seconds.
  /// Call it before the ranks exit.
  void disable_guard();

 private:
  std::string own_key(const std::string& key) const { return key_of(launch_.attempt, group_number_, key); }
  std::string root_key(const std::string& key) const { return key_of(launch_.attempt, -1, key); }
  template <typename Work>
  auto call_store(const Work& work);  // runs `work` on the store; puts the rank in front of its errors
  void begin_watch();
  std::vector<int> gather_members(int64_t next);  // on rank 0: waits for the others and announces the new members
  std::vector<int> await_members(int64_t next);   // on the others: reports this rank and waits for the announcement
  int64_t announced_group();

  Launch launch_;
  ClusterOptions options_;
  std::unique_ptr<RendezvousStore> store_;
  Heartbeat* heartbeat_;  // never deleted, because its threads may be blocked
  Collective* group_;     // never deleted either
  std::vector<int> members_;
  int64_t group_number_ = 0;
  bool broken_ = false;
};

}  // namespace evenkeel::cluster
