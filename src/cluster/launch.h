/// \file  Finds the rank of this process, the number of ranks and the address of the store, from `[cluster]` or from
/// the environment variables of torchrun, Open MPI, PMI (MPICH) or Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cluster/collective.h"
#include "cluster/options.h"

namespace evenkeel::cluster {

/// The result of find_launch().
struct Launch {
  int rank = 0, size = 1;
  StoreAddress store{};  ///< empty when size is 1
  /// Number of times that the launcher has restarted the run. Every key in the store contains this number, so a restart
  /// does not read the keys of an earlier attempt.
  std::string attempt = "0";
  std::string launcher{};  ///< source of rank and size, for messages
};

/// Returns the value of an environment variable, or nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
/// Returns a function that reads the variables of this process.
Environment this_environment();

/// Determines rank, number of ranks and address of the store. Sources in order of precedence: the options, torchrun,
/// Open MPI, PMI, Slurm. Slurm's variables are used only inside an srun step, and only if no other launcher has set
/// variables, because srun may have started that launcher. A batch script itself is not a rank. If nothing is set, the
/// run has one rank.
/// The address is the first of these that is set: `cluster.store`; MASTER_ADDR with MASTER_PORT; under Slurm, the first
/// host of the step with a port computed from job and step.
/// \throws kConfig for a rank without a size or the reverse, a rank that is not below the size, two launchers that
/// disagree, several ranks without an address, and a number, port or node list that cannot be parsed
Launch find_launch(const ClusterOptions& options, const Environment& environment = this_environment());

/// Returns the first host of a Slurm node list, e.g. "node07" of "node[07-09,12],gpu1".
/// \throws kConfig for an unclosed bracket
std::string first_host(const std::string& node_list);

/// Returns a warning if the ranks on this machine need more processors than this process may use, otherwise an empty
/// string.
/// \param threads     threads per rank
/// \param processors  processors that this process may use
/// \param ranks_here  number of ranks on this machine
/// \param launcher    name of the launcher, for the text
std::string threads_warning(int64_t threads, int64_t processors, int ranks_here, const std::string& launcher);

}  // namespace evenkeel::cluster
