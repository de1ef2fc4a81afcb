/// \file  Creates the state that a method starts with: fresh factors, or an existing adapter ([lora] init). A site is a
/// linear layer that an adapter is added to, or a stack of one per expert (lora/adapter.h).
#pragma once

#include "methods/protocol.h"

namespace evenkeel::methods {

/// Returns factors A and B for every site with the server's rank and scale. At a site of the adapter `server.start`,
/// the adapter's rows of A and columns of B come first and fresh ones follow. Fresh columns of B are zero, so the
/// product equals the adapter's product. Where a row of A and its column of B are zero, the row is a fresh one. All
/// rows are trained.
/// \throws kConfig naming the site when the adapter has a higher rank than the server, or when the server's rank is
/// below 1
lora::AdapterState first_adapters(const ServerView& server);

/// Works as first_adapters(), with scale 1 and with `server.start` as its singular triplets, the largest first. Methods
/// whose server cuts by SVD use it. \throws as first_adapters()
lora::AdapterState first_svd_adapters(const ServerView& server);

/// Returns `server.start` as a change of the base, for methods whose clients train fresh factors in every round. It has
/// no limit of the rank. It is empty without such an adapter.
lora::AdapterState first_base_change(const ServerView& server);

}  // namespace evenkeel::methods
