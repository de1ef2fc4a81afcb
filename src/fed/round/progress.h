/// \file  The progress line of a training run: clients done, tokens per second, time left; and the question after every
/// step whether to stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/plain/log.h"
#include "base/system/interrupt.h"
#include "fed/exchange/fabric.h"
#include "fed/round/server.h"

namespace evenkeel {

/// "42 s", "3:07 min", "2:15 h".
std::string readable_duration(double seconds);

class RunProgress {
 public:
  /// \param rounds_done  of a run that goes on; 0 for a new one
  RunProgress(const Server& server, int64_t rounds_done, StopRequest stop = {});

  void begin_round(const RoundView& round);
  /// A client whose upload was in the journal already.
  void skip_client(const ClientProfile& client);
  void begin_client(const ClientProfile& client);
  /// After every optimiser step of a client, or after some. \throws Interrupted when asked to stop.
  void step(const ClientProgress& client);
  void end_client(const ClientProfile& client);

 private:
  double seconds() const;
  void show();

  const Server& server_;
  StopRequest stop_;
  log::Progress line_{"train"};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t steps_left_ = 0, steps_done_ = 0;
  int64_t tokens_ = 0;
  std::map<int64_t, ClientProgress> at_work_;  // as far as they were counted
  int64_t round_ = 0, clients_ = 0, clients_done_ = 0;
};

}  // namespace evenkeel
