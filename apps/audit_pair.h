/// \file  Compares the audit logs of a server and of one of its nodes, for `evenkeel status --audit --with`.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel::apps {

/// Checks that each log has the lines whose digests the other noted (AuditEvent::peer). Of a node that took part in
/// several runs, the lines of the server's run count.
/// \return how many heads were found, in one line
/// \throws kConfig unless one log is a server's and the other a node's; kCheckpoint naming the line whose head is
/// missing, or the first bad line of a log
std::string compared_audits(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace evenkeel::apps
