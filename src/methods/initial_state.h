/// \file  Creates the state that a method starts with: fresh factors, or an existing adapter ([lora] init). A site is a
/// linear layer that an adapter is added to, or a stack of such layers, one per expert (lora/adapter.h).
#pragma once

#include "methods/protocol.h"

namespace evenkeel::methods {

/// Returns factors A and B for every site with the server's rank and scale. At a site of the adapter `server.start`,
/// the adapter's rows of A and columns of B come first, with B rescaled to the server's scale. Fresh rows of A and zero
/// columns of B follow, so delta W equals the adapter's delta W. A row of A that is zero like its column of B would
/// never train, so a fresh row replaces it.
/// \throws kConfig naming the site when the adapter has a higher rank than the server, or when the server's rank is
/// below 1
lora::AdapterState first_adapters(const ServerView& server);

/// Works as first_adapters() with scale 1 and with the factors of the SVD of `server.start`, the largest singular value
/// first. Methods whose server truncates by SVD use it. \throws as first_adapters()
lora::AdapterState first_svd_adapters(const ServerView& server);

/// Returns `server.start` as a change of the base (lora::add_to_base()), for methods whose clients train fresh factors
/// in every round. Its rank is not limited. The result is empty if `server.start` is null.
lora::AdapterState first_base_change(const ServerView& server);

}  // namespace evenkeel::methods
