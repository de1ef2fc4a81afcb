/// \file  Computes the record of a round (fed/store/round_records.h) from what its clients measured.
#pragma once

#include <span>

#include "fed/round/server.h"
#include "fed/store/round_records.h"

namespace evenkeel {

/// What is known of a round when it is over, but for who was lost.
/// \param records  one per participant, in the round's order
/// \param next     the state after the round
/// \param seconds  by phase, without the tokens per second
RoundRecord round_record(const Server& server, const RoundView& round, std::span<const ClientRecord> records,
                         const OtherTraffic& other, const ServerState& next, const PhaseSeconds& seconds);

/// FLOPs of a client's round by the convention of models/cost.h, from the steps and tokens it counted.
double client_flops(const Server& server, const ClientProfile& client, const LocalReport& report);

/// Token-choices per token, counted, mean over the MoE layers; 0 on a dense model.
double experts_per_token(const RoutingByLayer& counts);

}  // namespace evenkeel
