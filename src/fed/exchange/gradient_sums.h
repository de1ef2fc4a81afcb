/// \file  Computes sums of gradients of frozen weights, over rows of one client or of all clients together. Fed-SB
/// initialises its factors from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/random/random.h"
#include "data/example.h"
#include "fed/exchange/client_context.h"
#include "fed/exchange/message.h"

namespace evenkeel::fed {

/// Returns the name of the payload extra that holds the gradient of a site's weight.
std::string gradient_name(const std::string& site);

/// A training row with the K_c (experts per token) of the client that owns it. Borrows the row.
struct OwnedRow {
  const data::Example* example;
  int64_t top_k;
};

/// Draws `count` of `rows`, or all if there are fewer. Sums the gradients of the frozen weights of the sites in `task`
/// over micro-batches. Each row is routed with the K_c of its owner; a micro-batch holds only rows of equal K_c.
/// \param stream  random numbers for the draw
/// \return a reply with an extra "<site>.gradient" per site, [*, out, in] float32 (`*` is E for stacked experts, else
/// empty), or without an upload if no row was drawn
Reply sum_gradients(const ClientContext& context, const Task& task, std::span<const OwnedRow> rows, int64_t count,
                    RandomStream stream);

/// Returns the gradients in a reply of sum_gradients(), by gradient_name(); empty if it has no upload.
/// \throws kData, kCheckpoint when the upload cannot be decoded
TensorMap gradients_in(const Reply& reply);
/// Checks the reply to a request for sums of gradients: none, or one finite gradient of each site that was asked for.
/// \param sites  all sites of the model
/// \throws kData naming client and site; as gradients_in()
void check_gradients(const lora::Sites& sites, const SumGradients& ask, const Reply& reply);

}  // namespace evenkeel::fed
