/// \file  Computes simulated time: the duration of a round if all clients ran at the same time, each on the machine
/// that the config assigns to it (fed/config/machine_profiles.h). The times of a client, in seconds, are computed from
/// its bytes and tokens:
///
///   down  = latency + 8 bytes_down / (down_mbit 10^6)    train = tokens / tokens_per_second(K)
///   up    = latency + 8 bytes_up / (up_mbit 10^6)        end   = start + down + train + up
///
/// Each rate and speed is multiplied by the client's own factor. The round closes with the last reply. If a deadline is
/// set and replies are missing when it passes, the round closes at the deadline, and late clients are lost. If fewer
/// than clients.quorum clients have replied by the deadline, the round closes with the reply that completes the quorum.
/// A client that drops out receives its task and never replies, so it is not trained. A late client is trained, because
/// the size of its upload is known only afterwards. Times depend only on the config, the seed and the counts in the
/// round's records. They do not depend on threads, real time or interruptions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fed/config/run_config.h"
#include "fed/store/round_records.h"
#include "fed/store/run_checkpoint.h"

namespace evenkeel::fed {

/// Checks the machine profiles before anything is trained. Drop-outs are simulated for at most 20 million (client,
/// round) pairs, which takes about a second.
/// \throws kConfig naming the client when its profile has no speed for its K; kConfig naming the first round in which
/// drop-outs leave fewer clients than clients.quorum or secure_aggregation.threshold
void check_machines(const RunConfig& config, std::span<const methods::ClientProfile> clients);

/// The simulated clock of the round that follows `now`. Borrows the config. If clients have no machine profiles, runs()
/// is false: no client drops out or is late, and add_times() changes nothing.
class RoundClock {
 public:
  RoundClock(const RunConfig& config, const methods::RoundView& round, const Snapshot& now);

  /// Returns true if time is simulated.
  bool runs() const { return !machines_.empty(); }
  /// Returns true if the client drops out of this round.
  bool drops_out(int64_t client) const;
  /// Ends the round after all replies have arrived. REQUIRES runs() and at least one reply
  /// \param round    the round without the clients that did not reply
  /// \param arrived  records of all clients of `round`, in the same order
  /// \param missing  true if other clients have a task and did not reply
  /// \return the clients of `round` that were late
  std::vector<LostClient> close(const methods::RoundView& round, std::span<const ClientRecord> arrived, bool missing);
  /// Returns the simulated seconds from the beginning of the run to the end of this round. REQUIRES that close() was
  /// called
  double end() const { return start_ + seconds_; }
  /// Writes the simulated times into the record.
  void add_times(RoundRecord& record) const;

 private:
  SimulatedClient simulated(const methods::ClientProfile& client, const ClientRecord& record) const;
  double closing(std::vector<double> arrivals, bool missing) const;

  const RunConfig& config_;
  std::map<int64_t, SimulatedMachine> machines_;  // of the round's participants
  int64_t round_;
  double start_, seconds_ = 0;
  std::map<int64_t, SimulatedClient> arrived_;
};

}  // namespace evenkeel::fed
