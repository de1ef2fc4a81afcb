/// \file  Computes what a node tells of its content: salted digests of its rows, base and tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "fed/run/experiment.h"
#include "flower/federation/content_digests.h"
#include "scoring/prepared_task.h"

namespace evenkeel::flower {

/// Returns the file of salt_of_run().
std::filesystem::path salt_file(const std::filesystem::path& folder, const std::string& run);

/// Returns the salt of a run on this node. It is kept in `folder` (<run>-salt.json, sealed), which is made if absent.
/// \param folder  empty: the salt is kept by the process only
/// \throws kCheckpoint when the stored salt is damaged, kIo
std::string salt_of_run(const std::filesystem::path& folder, const std::string& run);

/// Computes the digests of a client's content.
/// \param tested  the client's own test rows as prepared; null: it has none
/// Cost: the model's files are read unless their fingerprints are cached; one SHA-256 over all tokens of the rows.
ContentDigests content_digests(const fed::Experiment& e, int64_t client, const scoring::PreparedTask* tested,
                               const std::string& salt);

}  // namespace evenkeel::flower
