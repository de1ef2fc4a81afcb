/// \file  Measures the cosine between true gradients and pseudo-gradients (UB-SMoE's replacement for the gradients of
/// idle experts). Source: the UB-SMoE paper, Table 8, which does not describe the measurement (docs/ambiguities.md,
/// R45). The compared experts are the experts that no token of the rows reaches with the K_c of the smallest budget,
/// but that some token reaches with more experts per token. The pass with more experts gives their true gradient. Its
/// cosine with the server's pseudo-gradient is computed over the tensors of the experts' adapters.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "data/example.h"
#include "fed/run/measured_run.h"
#include "train/gradient_alignment.h"

namespace evenkeel::fed {

/// Number of experts per token with which idle experts get a true gradient.
enum class AlignMode {
  kKmax,   ///< K_max, the checkpoint's own number
  kDense,  ///< the same rows with all experts
};
constexpr auto names(AlignMode) {
  return std::array{config::EnumName<AlignMode>{"kmax", AlignMode::kKmax},
                    config::EnumName<AlignMode>{"dense", AlignMode::kDense}};
}

/// Computes the alignment of each MoE layer and of all together ("all"). The permutations of the baseline
/// (train/gradient_alignment.h) are drawn from the run's seed.
/// \param rows  rows that nobody trained on
/// \throws kConfig when the model is dense, the method sends no pseudo-gradients, lora.targets has no linear of the
/// experts, or no row has a target
std::vector<train::GradientAlignment> pg_alignment(const Experiment& experiment, const methods::ServerState& state,
                                                   std::span<const data::Example> rows, AlignMode mode);

/// Computes the alignment for the last committed round of a run folder. \throws as open_measured_run()
std::vector<train::GradientAlignment> run_pg_alignment(const MeasuredRunOptions& options, AlignMode mode);

}  // namespace evenkeel::fed
