/// \file  Which rank of how many this process is, and where the ranks find each other: from `[cluster]`, or from what
/// torchrun, Open MPI, PMI (MPICH) or Slurm leave in the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cluster/collective.h"
#include "cluster/options.h"

namespace evenkeel::cluster {

struct Launch {
  int rank = 0, size = 1;
  BoardAddress store{};
  std::string attempt = "0";  ///< how often the launcher has begun anew: keys of an earlier attempt are not this one's
  std::string launcher{};     ///< who says so, for messages
};

/// Reads an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment this_environment();

/// Precedence: the options, torchrun, Open MPI, PMI, Slurm; nobody: one rank. Slurm counts within a step of srun, and
/// where nobody else does: it may have started the launcher, and a batch script is no rank.
/// \throws kConfig for a rank without a size, two launchers that disagree, several ranks without an address.
Launch find_launch(const ClusterOptions& options, const Environment& environment = this_environment());

/// "node07" of "node[07-09,12],gpu1".
std::string first_host(const std::string& node_list);

/// One sentence where `threads` cannot all run: fewer processors are left to this process. Empty: all is well.
std::string threads_warning(int64_t threads, int64_t processors, int ranks_here, const std::string& launcher);

}  // namespace evenkeel::cluster
