/// \file  Sums up an audit log (fed/store/audit.h): traffic by work, and the last exchange with each client.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

#include "fed/store/audit.h"

namespace evenkeel::fed {

/// Exchanges of one kind of work: a task and what became of it.
struct WorkTraffic {
  int64_t replies = 0, lost = 0;
  int64_t bytes_down = 0, bytes_up = 0;  ///< headers and payloads, including repeated transfers
};

/// What became of all tasks in the log of a server or of a node.
struct AuditSummary {
  std::map<AuditWork, WorkTraffic> traffic;
  std::map<int64_t, std::map<AuditWork, AuditEvent>> last;  ///< by client: its last exchange of each work

  /// Counts an event. Events that end no task are ignored.
  void add(const AuditEvent& event);
  /// Returns the traffic of a work; zeros if there was none.
  WorkTraffic of(AuditWork work) const;
};

/// Sums up the lines of a log up to its first bad line. \return an empty summary if there is no file \throws kIo
AuditSummary summary_of(const std::filesystem::path& file);

}  // namespace evenkeel::fed
