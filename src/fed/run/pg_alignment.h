/// \file  Whether the pseudo-gradients of a state point where true gradients do. Source: the UB-SMoE paper, Table 8;
/// how it was measured is not described (R45). Here: of the experts that no token of a batch reaches at the smallest
/// client's K_c, those which the same batch does reach with more experts per token have a true gradient, and its cosine
/// with what the server sends is taken over their adapters' tensors.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"
#include "fed/run/experiment.h"

namespace evenkeel {

/// How an expert that is idle at K_c gets a true gradient.
enum class AlignMode {
  kKmax,   ///< the same rows with the checkpoint's own experts per token
  kDense,  ///< the same rows with all experts
};
constexpr auto names(AlignMode) {
  return std::array{config::EnumName<AlignMode>{"kmax", AlignMode::kKmax},
                    config::EnumName<AlignMode>{"dense", AlignMode::kDense}};
}

/// What the cosine would be if a pseudo-gradient belonged to no expert in particular: the compared experts'
/// pseudo-gradients are dealt among them so that none keeps its own, kShuffles times, drawn by the run's seed.
struct ShuffledCosine {
  static constexpr int64_t kShuffles = 100;
  double mean = 0, least = 0, most = 0;
};

/// Counts and the cosine of one layer, or of all layers with their tensors concatenated.
struct PgAlignment {
  std::string layer{};
  int64_t idle = 0;                ///< experts without a token at K_c
  int64_t compared = 0;            ///< of these, experts with a true gradient
  int64_t zero = 0;                ///< of these, experts whose pseudo-gradient is zero
  std::optional<double> cosine{};  ///< nothing where one side is zero; positive: both point uphill
  /// Nothing where there is no cosine, or fewer than two experts to shuffle. Of all layers: over those that have two.
  std::optional<ShuffledCosine> shuffled{};
};

/// One per MoE layer, and one named "all". `rows` are rows that nobody trained on, at the adapters of `state`.
/// \throws kConfig when the method sends no pseudo-gradients or no row has a target.
std::vector<PgAlignment> pg_alignment(const Experiment& experiment, const ServerState& state,
                                      std::span<const Example> rows, AlignMode mode);

/// The same for the last committed round of a run folder, on `limit` test rows of each of its evaluation tasks. Writes
/// nothing. \param data  folder of the tasks' files, empty: the run's; \param device  as --device has it, likewise
std::vector<PgAlignment> run_pg_alignment(const std::filesystem::path& folder, int64_t limit, AlignMode mode,
                                          const std::string& data = {}, const std::string& device = {});

}  // namespace evenkeel
