/// \file  Writes and reads partition.json of a run folder (fed/run/run_folder.h): the training files, and the rows of
/// every client in them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fed/config/client_rows.h"

namespace evenkeel::fed {

/// Writes partition.json. \throws kIo
void write_partition(const std::filesystem::path& folder, const Shards& shards);
/// Compares partition.json with the shards. \throws kCheckpoint when they do not match, or without partition.json
void check_partition(const std::filesystem::path& folder, const Shards& shards);
/// Returns the training files, where they are now. Empty if there is no partition.json, or rows are generated.
std::vector<std::string> files_in_partition(const std::filesystem::path& folder);

}  // namespace evenkeel::fed
