/// \file  Writes the progress of a command as JSON lines on standard output, for programs that drive this one. Each
/// line is an object, an event; docs/json-lines.md lists the events and their keys. The first event is "start", with
/// the version of the events, the program's version, the command and the process id. Nothing is written before begin().
/// All functions may be called from any thread.
#pragma once

#include <string_view>

#include "base/plain/json.h"

namespace evenkeel::events {

/// Version of the events. It changes when a key is removed or changes its meaning, not when one is added.
inline constexpr int kVersion = 1;

/// Turns events on. \param command  the sub-command, for "start"
void begin(std::string_view command);
/// Turns events off after begin(). Call it before the first event in ranks other than 0, because only rank 0 may write
/// to the shared stdout.
void leave_off();
/// Returns true after begin(), false after leave_off().
bool wanted();
/// Writes "start" with `fields`, unless "start" was written already. Does nothing before begin().
void start(const OrderedJson& fields = OrderedJson::object());
/// Writes {"event": name} with `fields`. Writes "start" first if it was not written. Does nothing before begin().
/// \throws std::ios_base::failure when stdout cannot be written; apps/output.h makes an error message of it
void write(std::string_view name, const OrderedJson& fields);
/// Works as write(), for the last event of a command that failed. An event that cannot be written is ignored.
void write_last(std::string_view name, const OrderedJson& fields) noexcept;
/// Returns true at most once in a tenth of a second, and only when events are on. When it returns true, the caller must
/// then write a "progress" event: the turn is used up.
bool take_progress_turn();

}  // namespace evenkeel::events
