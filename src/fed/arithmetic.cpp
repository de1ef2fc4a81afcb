#include "fed/arithmetic.h"

#include <ATen/Parallel.h>

#include "nn/kernels/frozen_matmul.h"

namespace evenkeel {
MachineChoices machine_choices(const ExperimentConfig& config) {
  MachineChoices machine{.threads = at::intraop_default_num_threads()};
  if (config.model.compute_dtype != ComputeDtype::kAuto || config.model.stores_wide()) return machine;
  const int before = at::get_num_threads();
  at::set_num_threads(static_cast<int>(config.threads > 0 ? config.threads : machine.threads));
  if (probe_matmul_path() == MatmulPath::kNative) machine.compute_dtype = ComputeDtype::kBFloat16;
  at::set_num_threads(before);
  return machine;
}

}  // namespace evenkeel
