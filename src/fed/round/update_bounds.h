/// \file  Decides which updates of a round are too large to be part of it: the bounds clients.update_norm and
/// clients.update_ratio (docs/decisions/0101-what-one-client-may-add.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace evenkeel::fed {

/// The size of one client's update, as fed/round/update_size.h measures it.
struct UpdateSize {
  int64_t client = 0;
  double moved = 0;   ///< norm of what the client added
  int64_t steps = 1;  ///< optimiser steps that it took
  double reach = 0;   ///< how far the optimiser can move in these steps, up to a small factor; 0: no such bound
};

/// The smallest number of updates of which a single wrong one is in the minority.
inline constexpr size_t kMajority = 3;

/// The bounds of a round. 0: no bound.
struct UpdateBounds {
  double norm = 0;   ///< largest norm of an update
  double ratio = 0;  ///< largest multiple of the round's reference
};

/// An update beyond a bound.
struct TooLarge {
  int64_t client = 0;
  double moved = 0;
  std::string why;  ///< how far it moved, and what is allowed
};

/// Returns the updates beyond the bounds, in the order of `sizes`. With three updates or more, the reference of client
/// c is max(m, s_c n), where m is the median of the norms, n the median of the norms per step, and s_c the client's
/// steps: a client with more rows takes more steps and may move farther. Both are lower medians, so the reference is in
/// the range of the honest updates as long as they are the majority. With one or two updates, which have no majority,
/// or if m is 0, the reference is the client's reach. An update that is not finite is beyond every bound.
std::vector<TooLarge> too_large(std::span<const UpdateSize> sizes, const UpdateBounds& bounds);

}  // namespace evenkeel::fed
