/// \file  Simulated time: what a round would take if every client ran on the machine that the config gives it
/// (fed/config/machine_profiles.h), all at once. A client's round is its task's way down, its training and its upload's
/// way up, from the bytes that were sent and the tokens that were trained on:
///
///   down  = latency + 8 bytes_down / down_mbit 10^6      train = tokens / tokens_per_second(K)
///   up    = latency + 8 bytes_up / up_mbit 10^6          end   = start + down + train + up
///
/// The round closes with the last reply. With a deadline it closes there when somebody is missing then, and whoever is
/// late is lost; while fewer than clients.quorum have replied the deadline is extended. A client that drops out takes
/// its task and is never heard of again: it is not trained. One that is late is, for what it would send is known only
/// then. Nothing depends on threads, on the real clock or on interruptions: all follows from the config, the seed and
/// what the round's records count.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fed/store/round_records.h"
#include "fed/store/run_checkpoint.h"

namespace evenkeel {

/// \throws kConfig naming the client when its profile does not say how fast its K is, and naming the first round in
/// which fewer than clients.quorum are left by those who drop out: both can be known before anything is trained.
void check_machines(const ExperimentConfig& config, std::span<const ClientProfile> clients);

/// The clock of the round that follows `now`. Borrows the config. Where clients have no profiles it stands still:
/// nobody drops out, nobody is late, and records say nothing of it.
class RoundClock {
 public:
  RoundClock(const ExperimentConfig& config, const RoundView& round, const Snapshot& now);

  bool runs() const { return !machines_.empty(); }
  bool drops_out(int64_t client) const;
  /// Ends the round, once all who replied have. REQUIRES runs()
  /// \param arrived  of the clients of `round`, whose uploads came
  /// \param missing  whether others have their task and did not reply
  /// \return who of `round` came too late
  std::vector<LostClient> close(const RoundView& round, std::span<const ClientRecord> arrived, bool missing);
  /// Seconds since the beginning of the run. REQUIRES close()
  double end() const { return start_ + seconds_; }
  /// Enters what is simulated.
  void tell(RoundRecord& record) const;

 private:
  SimulatedClient simulated(const ClientProfile& client, const ClientRecord& record) const;
  double closing(std::vector<double> arrivals, bool missing) const;

  const ExperimentConfig& config_;
  std::map<int64_t, SimulatedMachine> machines_;  // of the round's participants
  int64_t round_;
  double start_, seconds_ = 0;
  std::map<int64_t, SimulatedClient> arrived_;
};

}  // namespace evenkeel
