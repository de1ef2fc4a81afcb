/// \file  Computes the measures of experts that the paper's figures show, by name, and lists the layers and rounds that
/// a run has.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "records/run_records.h"

namespace evenkeel::study {

using ExpertMeasure = std::function<std::optional<double>(const records::RunRecords& run)>;

/// Returns the measure of that name, or an empty function if there is none:
///
///   entropy_joint, entropy, entropy_std   of utilisation (nn/moe/utilization.h): of all layers together; mean and
///                                         standard deviation over layers
///   gini, gini_std                        mean and standard deviation over layers
///   pearson, spearman, slope              of phi and utilisation (records/phi_correlation.h)
///   pg_cosine                             of pseudo-gradients and true gradients, all layers together
///
/// A name alone means the last round. "entropy_joint change" is the last round minus the first, "gini round 3" the
/// value of round 3, and "gini layer 5" the value of the layer that the model calls 5, in the last round. Only entropy,
/// gini and pg_cosine have values per layer; pg_cosine has neither "change" nor "round". It is read from
/// pg-alignment.jsonl in the run folder, which holds the output of `evenkeel pg-alignment --json`. The returned
/// function returns nothing if the run lacks the measure, and throws kData if pg-alignment.jsonl is damaged.
ExpertMeasure expert_measure(std::string_view name);

/// Returns "layer 0", "layer 1" … as the model numbers its expert layers; empty for a dense model or without rounds.
std::vector<std::string> expert_layers(const records::RunRecords& run);
/// Returns "round 1", "round 2" … of the rounds that the run has.
std::vector<std::string> rounds_of(const records::RunRecords& run);

}  // namespace evenkeel::study
