/// \file  Provides what a server needs to read the sum of a round's changes: the layout of the sum, the sum itself, and
/// the factors that were changed.
#pragma once

#include <span>

#include "fed/round/server.h"

namespace evenkeel::fed {

/// Returns the layout of the values of an upload in a round's sum (fed/exchange/summed_upload.h).
/// \param download  the broadcast to `client`
SummedLayout layout_of_round(const Server& server, const methods::ServerState& state,
                             const methods::ClientProfile& client, const lora::Payload& download);

/// The sum of a round's summands, without masks.
struct SumOfSummands {
  methods::RoundView roster;  ///< the drawn clients, or among nodes the clients that agreed on masks
  SummedTerms terms;          ///< Server::summed_terms() of the first client of the round
  secure::RingVector sum;
};
/// Adds the summands of a round and takes the masks off. The result is bit-identical on any number of processes, with
/// and without masks.
/// \param round  the round without lost clients
/// \throws kData when fewer clients are left than secure_aggregation.threshold
SumOfSummands sum_of_summands(const Server& server, const methods::RoundView& round, const SummedLayout& layout,
                              std::span<const methods::ClientUpdate> updates, const Aggregation& with);

/// Returns the factors of a broadcast as clients receive it, after the conversion to the transport dtype.
lora::AdapterState received_adapters(const Server& server, const lora::Payload& download);

}  // namespace evenkeel::fed
