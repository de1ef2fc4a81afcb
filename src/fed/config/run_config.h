/// \file  Defines the config that a run computes with. An ExperimentConfig is what was asked for. In the RunConfig that
/// settle() makes of it, each value is given, and each client has its budget, rank, machine and rows. A RunConfig does
/// not change. All code after settle() takes a RunConfig, so it cannot get a config that is not settled.
/// Example:  const auto run = settle(with_inputs(asked), machine_choices(asked));
///           run->train.rounds, run.plan(3).budget
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// The settled values of one client of a run.
struct ClientPlan {
  double budget = 1;                        ///< beta_c, in (0, 1]
  int64_t rank = 0;                         ///< r_c, its LoRA rank
  std::string machine{};                    ///< name in [client_profiles]; empty: time is not simulated
  std::optional<data::ClientFiles> rows{};  ///< files of its own rows; nullopt: it gets a part of the rows of [data]

  /// Returns true if the client has test rows of its own.
  bool tests() const { return rows && rows->tests(); }
};

/// A settled config. Copies are cheap: they share the values. Threads: any number may read.
class RunConfig {
 public:
  /// Wraps the values of a settled config, usually read from its text.
  /// \param source  where the values are from, for the message
  /// \throws kConfig naming a key that was left open
  static RunConfig of_settled(ExperimentConfig values, std::string_view source);

  RunConfig(const RunConfig&) = default;
  RunConfig& operator=(const RunConfig&) = default;
  ~RunConfig() = default;

  /// Return the values. The text of the config names all of them and parses to an equal config.
  const ExperimentConfig& operator*() const { return settled_->values; }
  const ExperimentConfig* operator->() const { return &settled_->values; }

  /// Returns the plans of all clients, by id.
  const std::vector<ClientPlan>& plans() const { return settled_->plans; }
  /// \param client  in [0, clients.count)
  const ClientPlan& plan(int64_t client) const { return settled_->plans.at(static_cast<size_t>(client)); }
  /// Returns the tasks of `[evaluate]` whose rows are on this machine, not at nodes.
  const std::vector<std::string>& tasks_here() const { return settled_->tasks_here; }
  /// Returns how to read all rows of a task.
  const data::RowOptions& rows() const { return settled_->rows; }
  /// Returns how to read `limit` rows of a task; 0: all.
  data::RowOptions rows(int64_t limit) const;
  /// Returns how to read the rows of a client that has its own. \param limit  number of rows; 0: all
  data::RowOptions own_rows(int64_t client, int64_t limit) const;
  /// Returns which test rows to score.
  /// \param own_of    the client whose own rows are scored; nullopt: the test rows of all clients
  /// \param limit     number of rows; 0: all
  /// \param left_out  with own_of = nullopt: clients whose own rows are left out, ascending
  data::RowOptions rows_to_score(std::optional<int64_t> own_of, int64_t limit,
                                 const std::vector<int64_t>& left_out = {}) const;
  /// Returns the clients that bring rows of their own and whose last round (clients.client[].until) is before
  /// `rounds`, ascending.
  std::vector<int64_t> left_out_after(int64_t rounds) const;

  /// Returns a config in which `change` has changed values, for another evaluation of the run or a part of its work.
  /// \throws kInternal when `change` leaves a value open
  RunConfig with(const std::function<void(ExperimentConfig& values)>& change) const;

 private:
  struct Settled {
    ExperimentConfig values;
    std::vector<ClientPlan> plans;
    data::RowOptions rows, common_rows;  // common_rows: without the clients' own files
    std::vector<std::string> tasks_here;
  };
  explicit RunConfig(ExperimentConfig values);
  friend RunConfig settle(ExperimentConfig asked, const MachineChoices& machine);

  std::shared_ptr<const Settled> settled_;
};

/// Settles what was asked for: replaces values that are "auto", empty or relative to other keys, and expands
/// $EVENKEEL_DATA, addresses of the hub and families of tasks. It reads no files and does not look at the machine.
/// with_inputs() in fed/config/config_paths.h comes before it where the run is to read the files of this machine.
/// \param machine  the values of "all cores" and "auto" (machine_choices() in fed/config/arithmetic.h)
/// \throws kConfig when values do not go together
RunConfig settle(ExperimentConfig asked, const MachineChoices& machine);

}  // namespace evenkeel::fed
