/// \file  What a method begins with: fresh factors, or an adapter that is there already ([lora] init), in the forms
/// that methods keep it in.
#pragma once

#include "methods/protocol.h"

namespace evenkeel {

/// A and B of every site at the server's rank and scale: fresh ones, and where `server.start` has the site, its rows of
/// A and columns of B in front of the fresh ones, whose B is zero: the effect is that of the start, and all rows learn.
/// \throws kConfig for a start of a higher rank than the server's.
AdapterState first_adapters(const ServerView& server);

/// The same with scale 1, the start cut to its largest singular triplets, as servers keep it that cut by SVD.
AdapterState first_best_adapters(const ServerView& server);

/// The start as a change of the base, for methods whose clients train fresh factors in every round; empty without one.
AdapterState first_base_change(const ServerView& server);

}  // namespace evenkeel
