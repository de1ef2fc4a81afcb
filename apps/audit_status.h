/// \file  Checks an audit log and says what is in it (fed/store/audit.h), for `evenkeel status --audit`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace evenkeel::apps {

/// Returns the audit log of `path`: the file itself, that of a server's run folder, or that of a node's memory folder.
/// \throws kIo when there is none
std::filesystem::path audit_file(const std::filesystem::path& path);

/// Returns the number of lines, what they are about, the traffic of each client, torn lines, and the head.
/// \param heads  digests that were written down elsewhere; the line of each is named
/// \throws kCheckpoint naming the first bad line when the chain does not hold, or a head that no line has
std::string audit_status(const std::filesystem::path& file, const std::vector<std::string>& heads);

}  // namespace evenkeel::apps
