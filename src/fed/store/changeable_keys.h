/// \file  Lists the keys of a config that a resumed run may change: bounds, deadlines, the quorum, and what is
/// evaluated when. A change affects only later rounds, so all records stay true.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fed/config/run_config.h"
#include "fed/store/changed_keys.h"

namespace evenkeel::fed {

/// The reason that why_not_changeable() returns for a key that no run may change.
inline constexpr std::string_view kKept = "a resumed run keeps it";

/// Returns why a resumed run must not change the value of a key; empty if it may.
/// \param run     the config of the run
/// \param scores  number of scores that the run has recorded
std::string why_not_changeable(std::string_view key, const RunConfig& run, size_t scores);

/// Copies the values of the changeable keys among `keys`; ignores the others.
void take_values(std::span<const ChangedKey> keys, const ExperimentConfig& from, ExperimentConfig& to);

/// Returns the keys that some run may change, for tests.
std::vector<std::string_view> changeable_keys();

}  // namespace evenkeel::fed
