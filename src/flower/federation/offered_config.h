/// \file  Makes the config that a node computes with from the config that a server offers.
#pragma once

#include <filesystem>
#include <string>

#include "fed/config/run_config.h"
#include "flower/federation/agreement.h"
#include "flower/federation/client_options.h"

namespace evenkeel::flower {

/// Reads the config that a node agrees to (NodeClientOptions::agreed).
/// \throws kIo, kConfig when it or its chat template cannot be read
fed::ExperimentConfig agreed_config(const std::filesystem::path& file);

/// Returns the file of the chat template that the server of a run brings. \param folder  NodeClientOptions::folder
std::filesystem::path template_file(const std::filesystem::path& folder, const std::string& run);

/// Returns the offered config with the paths and settings of this machine. Writes the template file, if the run needs
/// one: the caller removes it when it refuses the offer.
/// \throws kConfig, kData when the offer does not go with the node's options, rows or chat template
fed::RunConfig node_config(const Offer& offer, const NodeClientOptions& options);

/// Checks that the keys that decide what the client trains and what its scores show have the values of `agreed`.
/// \param agreed  a config file; empty: nothing is checked \throws kConfig naming the keys that differ
void require_agreed_config(const std::filesystem::path& agreed, const fed::RunConfig& offered, int64_t client);

}  // namespace evenkeel::flower
