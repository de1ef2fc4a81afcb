/// \file  What `evenkeel status` shows of a federation beside what it shows of every run.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel {

/// Where a server is asked for its figures.
struct ServerAddress {
  std::string server, ca;
  bool insecure = false;
};

/// Whether a server made the folder.
bool is_served(const std::filesystem::path& run);
/// Who has joined, and what came of the last exchange with each client. REQUIRES is_served()
std::string clients_status(const std::filesystem::path& run);
/// The server's own figures, without the lines that explain them.
std::string server_status(const ServerAddress& address);

}  // namespace evenkeel
