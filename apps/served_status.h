/// \file  Formats the part of `evenkeel status` that only the run of a server has: its nodes and metrics.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel::apps {

/// Address of a server whose metrics are fetched.
struct ServerAddress {
  std::string server, ca;  ///< as ServerFlags has it (apps/endpoints.h); PEM file of the authority, empty: none
  bool insecure = false;   ///< true: without TLS
};

/// Returns true if the run folder was made by a server (`evenkeel serve`).
bool is_served(const std::filesystem::path& run);
/// Returns the nodes that joined and the result of the last exchange with each client. REQUIRES is_served(run).
/// \throws kCheckpoint when a file is damaged; kIo when a file cannot be read
std::string clients_status(const std::filesystem::path& run);
/// Fetches the server's metrics and returns them without their comment lines. \throws kConfig unless exactly one of
/// `ca` and `insecure` is given; kIo when connecting, sending or the next part of the answer takes over 10 seconds, or
/// the server refuses
std::string server_status(const ServerAddress& address);

}  // namespace evenkeel::apps
