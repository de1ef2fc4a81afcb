/// \file  Distributes the clients of a run over its ranks. It is the transport (Fabric, fed/exchange/fabric.h) that
/// rank 0 uses instead of a LocalFabric, which trains all clients in one process. Every rank holds the base and all
/// rows, and trains the clients assigned to it. Rank 0 owns the run folder.
#pragma once

#include <chrono>
#include <filesystem>

#include "cluster/command.h"
#include "fed/run/experiment.h"

namespace evenkeel::cluster {

/// Reduces values over all ranks of a group.
class GroupReduction : public lora::Reduction {
 public:
  explicit GroupReduction(ProcessGroup& member) : member_(member) {}
  void max(std::span<int64_t> values) const override;
  void sum(std::span<int64_t> values) const override;

 private:
  ProcessGroup& member_;
};

/// The fabric of rank 0. It sends commands (cluster/command.h) to the other ranks and collects their replies. Not
/// thread-safe. \throws from every function as ProcessGroup::check()
class ClusterFabric : public fed::Fabric {
 public:
  /// Borrows `member` and `experiment`.
  /// \param log  file to which one line per assignment is appended: which rank trains which client
  ClusterFabric(ProcessGroup& member, fed::Experiment& experiment, std::filesystem::path log);

  void announce(std::span<const methods::ClientProfile> clients, const fed::StateUpdate& news) override;
  /// Distributes two kinds of tasks over the ranks: training, and SumGradients over clients' own rows. Rank 0 executes
  /// all other tasks itself.
  void exchange(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange) override;
  void remember(const fed::ClientMemories& memories) override { local_.remember(memories); }
  /// Commands the other ranks to aggregate `round` together with rank 0. Returns the reduction over all ranks.
  const lora::Reduction& sums(const methods::RoundView& round) override;
  /// With `cluster.regroup`, forms a new group of the remaining ranks after a loss. Returns false when the run cannot
  /// continue: without `cluster.regroup`, or if the group is not broken. \throws as ProcessGroup::regroup()
  bool recover() override;

  /// Dismisses the other ranks after the run is complete. A rank that cannot be reached causes only a warning.
  void end();

 private:
  bool alone() const { return member_.members().size() < 2; }
  int group_size() const { return static_cast<int>(member_.members().size()); }
  std::vector<std::vector<int64_t>> assign(std::span<const methods::ClientProfile> clients) const;
  void train(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange);
  void sum_gradients(std::span<const methods::ClientProfile> clients, const fed::Exchange& exchange,
                     const fed::SumGradients& ask);
  void work_here(const Command& command, const fed::Exchange& exchange);
  void collect(const Command& command, const fed::Exchange& exchange);
  void collect_from(int group_rank, const Command& command, const fed::Exchange& exchange);
  void show_others(const Command& command, const fed::Exchange& exchange);
  void log_assignment(const Command& command) const;

  ProcessGroup& member_;
  const fed::Server& server_;
  fed::LocalFabric& local_;
  std::filesystem::path log_;
  Commands commands_;
  GroupReduction reduction_;
  int64_t exchanges_ = 0;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace evenkeel::cluster
