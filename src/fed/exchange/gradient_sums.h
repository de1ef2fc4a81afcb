/// \file  Sums of gradients over some of the rows of one client, or of all of them together: what Fed-SB begins with.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/random/random.h"
#include "data/example.h"
#include "fed/exchange/client_context.h"
#include "fed/exchange/message.h"

namespace evenkeel {

/// The extra that holds the gradient of a site's weight.
std::string gradient_name(const std::string& site);

/// A row, and the K_c of the client that owns it.
struct OwnedRow {
  const Example* example;
  int64_t top_k;
};

/// Sum over micro-batches of the gradients of the frozen weights of `ask.sites`, of `count` of the `rows`, drawn, each
/// routed as its owner routes it: no micro-batch holds rows that are routed differently. The reply's payload: an extra
/// "<site>.gradient" of each, [*, out, in] float32; nothing when no row was drawn.
Reply sum_gradients(const ClientContext& place, const Task& task, std::span<const OwnedRow> rows, int64_t count,
                    RandomStream stream);

}  // namespace evenkeel
