/// \file  Reads the records of a run folder (fed/run/run_folder.h). Readers need no lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/plain/sealed.h"
#include "fed/store/round_records.h"

namespace evenkeel::fed {

/// Reads the lines of rounds.jsonl up to the first that is damaged or out of order.
SealedLines read_rounds(const std::filesystem::path& folder);
/// Reads the lines of evaluations.jsonl up to the first that is damaged.
SealedLines read_evaluations(const std::filesystem::path& folder);
/// Reads items/round-N.jsonl. Empty if the run does not record items. \throws kCheckpoint when a line is damaged
std::vector<ItemRecord> read_items(const std::filesystem::path& folder, int64_t round);

/// Returns the path of items/round-N.jsonl.
std::filesystem::path items_file(const std::filesystem::path& folder, int64_t round);

}  // namespace evenkeel::fed
