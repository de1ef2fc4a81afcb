/// \file  Describes the process that holds a lock, as the lock file names it, and finds out whether it still runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace evenkeel {

/// Returns the name of this machine, or an empty text.
std::string host_name();

/// The content of a lock file. Host, process, start time and boot together name one process for all time.
struct LockOwner {
  std::string host;
  int64_t process = 0;    ///< 0: nothing is known of the owner
  std::string started;    ///< start of the process in clock ticks since the boot (field 22 of /proc/PID/stat)
  std::string boot;       ///< /proc/sys/kernel/random/boot_id
  std::string pids;       ///< the namespace of the process number: /proc/self/ns/pid
  std::string since;      ///< UTC time of locking, for people
  std::string note;       ///< what the holder does with the lock
  bool by_system = true;  ///< the system holds a lock too, and releases it when the process ends

  /// Returns the owner for a lock of this process.
  static LockOwner of_this_process(std::string note);
  /// Reads what text() wrote. Returns nothing for other text.
  static std::optional<LockOwner> read(std::string_view text);
  /// Returns one line of JSON.
  std::string text() const;
  /// Returns "process 12 on host since 2026-11-28T04:00:00Z", or "another process" if nothing is known.
  std::string name() const;
  bool operator==(const LockOwner&) const = default;
};

/// Says whether a process still runs.
enum class Running {
  kYes,
  kNo,
  kUnknown,  ///< it is, or was, on another machine or in another container
};

/// Returns whether the process that `owner` names still runs. A process of this host from before the last boot does
/// not.
Running is_running(const LockOwner& owner);

}  // namespace evenkeel
