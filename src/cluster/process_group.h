/// \file  A process as one of the ranks of a run: what all of them see, who is still there, and the group that they
/// form. A thread of its own beats on the store and watches the others' beats, so that nobody needs to sit in an
/// operation to learn of a loss. Nothing of it waits when it is destroyed: who leaves, leaves.
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

/// Keys of one group: a launcher's attempt and the group's number are in front, so that what an earlier one left is not
/// seen.
std::string key_of(const std::string& attempt, int64_t epoch, const std::string& key);

class ProcessGroup {
 public:
  /// Reaches the store, or keeps it, and begins to beat.
  ProcessGroup(const Launch& launch, const ClusterOptions& options);

  int rank() const { return launch_.rank; }
  int launched() const { return launch_.size; }
  bool leads() const { return launch_.rank == 0; }
  const ClusterOptions& options() const { return options_; }
  int64_t epoch() const { return epoch_; }
  /// The ranks of the group, in order: all, but for those that were lost.
  const std::vector<int>& members() const { return members_; }
  int group_rank() const;  ///< own place among them

  void post(const std::string& key, const std::string& value);
  std::optional<std::string> read(const std::string& key);
  /// \throws as check(), as long as it takes
  std::string wait_for(const std::string& key);
  /// \throws kIo naming the rank that is lost, what another rank left with, Interrupted when one was asked to stop.
  void check();
  /// Sleeps a little between two looks at the store.
  static void pause();
  /// For the others, before this one leaves; who leads gives them time to hear it.
  void tell(const std::string& trouble) noexcept;
  void tell_stop(const std::string& why) noexcept;

  /// All ranks that were launched, once; waits for them.
  void form_group();
  /// Runs `work` on the group. \throws what it does, saying rank and `what`; the group is broken then
  void together(const std::string& what, const std::function<void(Collective& group)>& work);

  /// Whether a rank was lost, so that regroup() makes sense.
  bool broken() const { return broken_; }
  /// Forms a group of those who are still there, the leader among them. Who leads finds them; the others run_worker.
  void regroup();
  /// Ends the watch: others may leave without being missed.
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
  Heartbeat* pulse_;   // lives as long as the process: its threads may be stuck
  Collective* group_;  // likewise
  std::vector<int> members_;
  int64_t epoch_ = 0;
  bool broken_ = false;
};

}  // namespace evenkeel::cluster
