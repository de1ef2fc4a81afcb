/// \file  Progress of a command as JSON lines on standard output, for programs that drive this one. One object per
/// line; docs/json-lines.md lists the events and their keys. The first is "start", with the version, the program's
/// version, the command and the process id. Nothing is written before begin(). All functions may be called from any
/// thread.
#pragma once

#include <string_view>

#include "base/plain/json.h"

namespace evenkeel::events {

/// Version of the events. It changes when a key is removed or changes its meaning, not when one is added.
inline constexpr int kVersion = 1;

/// Turns events on.
void begin(std::string_view command);
/// Turns events off again, before any was written: in processes that share the stdout of another.
void leave_off();
/// Returns true after begin().
bool wanted();
/// Writes "start" with `fields`, unless it was written. Does nothing before begin().
void start(const OrderedJson& fields = OrderedJson::object());
/// Writes {"event": name} with `fields`, after "start". Does nothing before begin().
/// \throws std::ios_base::failure when stdout cannot be written (apps/output.h)
void write(std::string_view name, const OrderedJson& fields);
/// Works as write(), for the last event of a command that failed: an event that cannot be written is not reported.
void write_last(std::string_view name, const OrderedJson& fields) noexcept;
/// Returns true when events are on and no "progress" event was written in the last tenth of a second. The caller writes
/// one then.
bool progress_due();

}  // namespace evenkeel::events
