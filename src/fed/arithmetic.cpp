#include "fed/arithmetic.h"

#include <ATen/Parallel.h>

#include "nn/kernels/frozen_matmul.h"

namespace evenkeel {
namespace {

void use_threads(int64_t threads) { at::set_num_threads(static_cast<int>(threads)); }

}  // namespace

MachineChoices machine_choices(const ExperimentConfig& config) {
  MachineChoices machine{.threads = at::intraop_default_num_threads()};
  if (config.model.compute_dtype != ComputeDtype::kAuto || config.model.stores_wide()) return machine;
  const int64_t before = at::get_num_threads();
  use_threads(config.threads > 0 ? config.threads : machine.threads);
  if (probe_matmul_path() == MatmulPath::kNative) machine.compute_dtype = ComputeDtype::kBFloat16;
  use_threads(before);
  return machine;
}

void use_arithmetic(const ExperimentConfig& config) {
  use_threads(config.threads);
  const bool native = config.model.compute_dtype == ComputeDtype::kBFloat16;
  set_matmul_path(native ? MatmulPath::kNative : MatmulPath::kWiden);
}

}  // namespace evenkeel
