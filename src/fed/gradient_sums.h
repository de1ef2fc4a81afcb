/// \file  Sums of gradients over some of the rows of one client, or of all of them together: what Fed-SB begins with.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"
#include "data/example.h"
#include "fed/message.h"
#include "fed/workplace.h"

namespace evenkeel {

/// A row, and the K_c of the client that owns it.
struct OwnedRow {
  const Example* example;
  int64_t top_k;
};

/// Sum over micro-batches of the gradient of the frozen weight of `ask.site`, of `count` rows drawn from `rows`, each
/// routed as its owner routes it: no micro-batch holds rows that are routed differently. The reply's payload: the extra
/// "gradient", [*, out, in] float32; nothing when no row was drawn.
Reply sum_gradients(const Workplace& place, const Task& task, std::span<const OwnedRow> rows, int64_t count,
                    RandomStream stream);

}  // namespace evenkeel
