#include "fed/round/progress.h"

#include <cstdio>

#include "base/plain/clock.h"
#include "base/system/events.h"

namespace evenkeel::fed {
namespace {

int64_t steps_of(const Server& server, const methods::ClientProfile& client) {
  return train::local_steps(server.config->train, static_cast<int64_t>(client.examples));
}

/// Returns the exact number of steps of all remaining rounds, because participants are known in advance.
int64_t steps_from(const Server& server, int64_t first_round) {
  int64_t steps = 0;
  for (int64_t t = first_round; t < server.config->train.rounds; ++t)
    for (const auto& client : server.drawn(t).participants) steps += steps_of(server, client);
  return steps;
}

}  // namespace

std::string readable_duration(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 60) return concat(whole, " s");
  const bool hours = whole >= 3600;
  const long long large = hours ? whole / 3600 : whole / 60, small = hours ? whole / 60 % 60 : whole % 60;
  char text[40];
  std::snprintf(text, sizeof text, "%lld:%02lld %s", large, small, hours ? "h" : "min");
  return text;
}

RunProgress::RunProgress(const Server& server, int64_t rounds_done, StopRequest stop)
    : server_(server), stop_(std::move(stop)), steps_left_(steps_from(server, rounds_done)) {}

void RunProgress::begin_round(const methods::RoundView& round) {
  if (!start_) start_ = std::chrono::steady_clock::now();
  round_ = round.round + 1;
  clients_ = static_cast<int64_t>(round.participants.size());
  clients_done_ = 0;
}

void RunProgress::skip_client(const methods::ClientProfile& client) {
  steps_left_ -= steps_of(server_, client);
  ++clients_done_;
}

void RunProgress::begin_client(const methods::ClientProfile& client) { at_work_[client.id] = {}; }

void RunProgress::step(const ClientProgress& client) {
  auto& counted = at_work_[client.client];
  tokens_ += client.tokens - counted.tokens;
  steps_done_ += client.steps - counted.steps;
  steps_left_ -= client.steps - counted.steps;
  counted = client;
  show();
  if (stop_ && stop_()) throw Interrupted(concat("stopped in round ", round_));
}

/// Counts the remaining steps of a client: clients in other processes may report steps only at their end.
void RunProgress::end_client(const methods::ClientProfile& client) {
  const int64_t unheard = steps_of(server_, client) - at_work_[client.id].steps;
  steps_done_ += unheard;
  steps_left_ -= unheard;
  at_work_.erase(client.id);
  ++clients_done_;
  show();
}

void RunProgress::show() {
  const double elapsed = seconds_since(*start_),
               per_step = elapsed / static_cast<double>(std::max<int64_t>(1, steps_done_));
  const double seconds_left = per_step * static_cast<double>(steps_left_);
  const auto rate = static_cast<int64_t>(static_cast<double>(tokens_) / elapsed);  // 0 where clients tell none
  if (events::take_progress_turn())
    events::write("progress", {{"phase", "train"},
                               {"round", round_},
                               {"rounds", server_.config->train.rounds},
                               {"clients_done", clients_done_},
                               {"clients", clients_},
                               {"steps_done", steps_done_},
                               {"steps_left", steps_left_},
                               {"tokens_per_second", rate},
                               {"seconds_left", seconds_left}});
  line_.update(concat("round ", round_, "/", server_.config->train.rounds, ", ", clients_done_, "/", clients_,
                      " clients, ", tokens_ > 0 ? concat(rate, " tokens/s, ") : "", readable_duration(seconds_left),
                      " left"));
}

}  // namespace evenkeel::fed
