/// \file  Returns what a server needs to read the sum of a round's changes: their order, and what they are changes of.
#pragma once

#include "fed/round/server.h"

namespace evenkeel::fed {

/// Returns the order of the values of an upload in a round's sum (fed/exchange/summed_upload.h).
/// \param download  the broadcast to `client`
SummedLayout layout_of_round(const Server& server, const methods::ServerState& state,
                             const methods::ClientProfile& client, const lora::Payload& download);

/// Returns the factors of a broadcast as clients receive it, after the conversion to the transport dtype.
lora::AdapterState received_adapters(const Server& server, const lora::Payload& download);

}  // namespace evenkeel::fed
