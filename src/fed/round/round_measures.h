/// \file  Computes the record of a round (fed/store/round_records.h) from what its clients measured.
#pragma once

#include <span>

#include "fed/round/server.h"
#include "fed/store/round_records.h"

namespace evenkeel::fed {

/// The measurements of a round.
struct MeasuredRound {
  std::span<const ClientRecord> clients;        ///< what each participant measured and sent
  const OtherTraffic& other;                    ///< traffic in addition to the participants' payloads
  const std::optional<SummedReport>& all = {};  ///< summed reports of all clients; nullopt: they are not hidden
};

/// Computes the record of a round, without lost clients, simulated times and privacy, which the caller adds.
/// \param measured  in the round's order
/// \param next     the state after the round
/// \param seconds  wall time by phase; tokens_per_second is computed here
RoundRecord round_record(const Server& server, const methods::RoundView& round, const MeasuredRound& measured,
                         const methods::ServerState& next, const PhaseSeconds& seconds);

/// Estimates the FLOPs of a client's round from its counted steps and tokens, by the convention of models/cost.h.
double client_flops(const Server& server, const methods::ClientProfile& client, const train::LocalReport& report);

/// Returns the mean of the counted experts per token over the MoE layers; 0 for a dense model.
double experts_per_token(const nn::RoutingByLayer& counts);

}  // namespace evenkeel::fed
