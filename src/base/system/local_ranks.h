/// \file  Reads the local rank and the number of local ranks of this process from the variables of torchrun, Open MPI,
/// MPICH or Slurm. `--ranks` sets the variables of torchrun.
#pragma once

#include <cstdint>
#include <string_view>

namespace evenkeel {

/// Returns the index of this process among those of the run on this machine; 0 without a launcher.
int64_t local_rank();
/// Returns the number of processes of the run on this machine; 1 without a launcher, or where it does not tell.
int64_t local_ranks();
/// Returns how many processes share one GPU, if a run has `ranks` processes on this machine: `ranks` with "cuda:N",
/// which names one GPU, otherwise 1. \param device  as for find_device() (base/system/device.h)
int64_t ranks_sharing(std::string_view device, int64_t ranks);

}  // namespace evenkeel
