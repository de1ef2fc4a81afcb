/// \file  Tells the user and the reader of `--progress json` how a run advances: log lines, and the events "run" and
/// "round" (docs/json-lines.md).
#pragma once

#include <cstdint>
#include <filesystem>

#include "fed/round/client_privacy.h"
#include "fed/round/server.h"
#include "fed/store/round_records.h"

namespace evenkeel::fed {

/// Writes the event "run". If rounds remain, logs what is trained and what the run protects, and warns of settings that
/// make it slow or unsafe.
/// \param privacy  null unless the run protects its clients
void report_beginning(const Server& server, const std::filesystem::path& folder, const ClientPrivacy* privacy,
                      int64_t rounds_done);
/// Logs the clients whose last round is `rounds`: from the next round on they are left out.
void log_left_out(const Server& server, int64_t rounds);
/// Logs a committed round and its privacy cost, and writes the event "round". \param rounds  number of all rounds
void report_round(const RoundRecord& record, int64_t rounds);

}  // namespace evenkeel::fed
