/// \file  Prints the progress line of a training run: clients done, tokens per second, time left. After every step it
/// calls a function that may stop the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/plain/log.h"
#include "base/system/interrupt.h"
#include "fed/exchange/fabric.h"
#include "fed/round/server.h"

namespace evenkeel::fed {

/// Formats a duration as "42 s", "3:07 min" or "2:15 h".
std::string readable_duration(double seconds);

/// Counts the steps of a run and prints the progress line. Borrows the server.
class RunProgress {
 public:
  /// \param rounds_done  number of rounds done already; 0 for a new run
  /// \param stop         returns true when the run is to stop; empty: never
  RunProgress(const Server& server, int64_t rounds_done, StopRequest stop = {});

  /// Starts to count the clients of `round`. The first call starts the clock.
  void begin_round(const methods::RoundView& round);
  /// Counts a client as done without training, for example because its upload is in the journal.
  void skip_client(const methods::ClientProfile& client);
  void begin_client(const methods::ClientProfile& client);
  /// Reports the steps and tokens of a client so far.
  /// \throws Interrupted when `stop` returns true
  void step(const ClientProgress& client);
  void end_client(const methods::ClientProfile& client);

 private:
  void show();

  const Server& server_;
  StopRequest stop_;
  log::Progress line_{"train"};
  std::optional<std::chrono::steady_clock::time_point> start_;  // of the first round: an evaluation may come before it
  int64_t steps_left_ = 0, steps_done_ = 0;
  int64_t tokens_ = 0;
  std::map<int64_t, ClientProgress> at_work_;  // by client: the progress counted so far
  int64_t round_ = 0, clients_ = 0, clients_done_ = 0;
};

}  // namespace evenkeel::fed
