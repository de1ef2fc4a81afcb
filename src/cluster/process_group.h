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

/// Returns the name of a key in the store. It contains the launcher's attempt and the number of the group, so keys of
/// earlier attempts and groups are not read. \param epoch  number of the group; negative: a key for all groups
std::string key_of(const std::string& attempt, int64_t epoch, const std::string& key);

/// The membership of this process in the group. Not thread-safe.
class ProcessGroup {
 public:
  /// Connects to the store, or hosts it, and starts the heartbeat. \throws kIo when the store cannot be reached.
  ProcessGroup(const Launch& launch, const ClusterOptions& options);

  int rank() const { return launch_.rank; }
  int launched() const { return launch_.size; }     ///< number of ranks at start
  bool leads() const { return launch_.rank == 0; }  ///< true on rank 0
  const ClusterOptions& options() const { return options_; }
  int64_t epoch() const { return epoch_; }  ///< number of the group, from 0
  /// Returns the ranks of the group in ascending order: all ranks that are not lost.
  const std::vector<int>& members() const { return members_; }
  int group_rank() const;  ///< index of this rank in members()

  /// Write and read a key of the current group. \throws kIo when the store cannot be reached.
  void post(const std::string& key, const std::string& value);
  std::optional<std::string> read(const std::string& key);
  /// Waits for a key without a time limit and returns its value. \throws as check().
  std::string wait_for(const std::string& key);
  /// Checks for failures of the group. \throws kIo naming the lost rank or the error of another rank, Interrupted when
  /// a rank was interrupted.
  void check();
  /// Sleeps 2 ms, for loops that poll the store.
  static void pause();
  /// Reports to the other ranks why this rank leaves. Rank 0 then waits 0.4 s, so that they can read it before the
  /// store is gone.
  void tell(const std::string& trouble) noexcept;
  /// Reports that this rank was interrupted, as tell().
  void tell_stop(const std::string& why) noexcept;

  /// Forms the group of members(), which are all launched ranks at first. Waits for them.
  void form_group();
  /// Runs `work` with the group. \throws the error of `work` with the rank and `what` in front; the group is broken
  /// after it. Also \throws as check().
  void together(const std::string& what, const std::function<void(Collective& group)>& work);

  /// Returns true when the group cannot go on, so that regroup() is needed.
  bool broken() const { return broken_; }
  /// Forms a new group of rank 0 and all ranks that are not lost. Each of them must call it. \throws kIo when rank 0 is
  /// lost.
  void regroup();
  /// From now on this process is not ended when the store stops answering. Call it before the ranks exit.
  void retire();

 private:
  std::string own_key(const std::string& key) const { return key_of(launch_.attempt, epoch_, key); }
  std::string root_key(const std::string& key) const { return key_of(launch_.attempt, -1, key); }
  template <typename Work>
  auto ask_board(const Work& work);
  void begin_watch();
  std::vector<int> gather(int64_t next);
  std::vector<int> run_worker(int64_t next);
  int64_t announced_epoch();

  Launch launch_;
  ClusterOptions options_;
  std::unique_ptr<RendezvousStore> store_;
  Heartbeat* heartbeat_;  // never deleted, because its threads may be blocked
  Collective* group_;     // never deleted either
  std::vector<int> members_;
  int64_t epoch_ = 0;
  bool broken_ = false;
};

}  // namespace evenkeel::cluster
