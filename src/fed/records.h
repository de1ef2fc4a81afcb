/// \file  The line of rounds.jsonl: everything that is reported of a round, measured, never assumed.
///
/// Keys: round (1 = the first), method, gate_norm (what the method asks for), gates_sum_to_one (over the selected
/// experts: by gate_norm or by the checkpoint's norm_topk_prob), participants, loss, first_loss, last_loss (mean per
/// target token), tokens, targets, steps, bytes_up, bytes_down (all that was sent, whoever got it), bytes_up_parts and
/// bytes_down_parts (the same by content: lora/payload.h and fed/message.h), experts_per_token, flops; clients (the
/// same per client, with id, budget, top_k, rank, examples, weight and metrics); metrics (mean over clients, by steps);
/// layers and, per layer in that order, utilization [L][E], entropy, gini, dead_experts, nearly_dead_experts;
/// entropy_mean, entropy_std, entropy_joint, entropy_unnormalized, gini_mean; diagnostics (the method's own tensors,
/// e.g. phi); seconds by phase; lost (ids of clients that did not reply, where there are any). All under "seconds"
/// differs from run to run, the rest does not.
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/json.h"
#include "fed/journal.h"
#include "fed/server.h"

namespace evenkeel {

/// Wall time of a round, by phase.
struct PhaseSeconds {
  double broadcast = 0, train = 0, upload = 0, aggregate = 0;
};

/// \param records  one per participant, in the round's order
/// \param next     the state after the round
OrderedJson round_record(const Server& server, const RoundView& round, std::span<const ClientRecord> records,
                         const OtherTraffic& other, const ServerState& next, const PhaseSeconds& seconds);

/// FLOPs of a client's round by the convention of models/cost.h, from the steps and tokens it counted.
double client_flops(const Server& server, const ClientProfile& client, const LocalReport& report);

/// Token-choices per token, counted, mean over the MoE layers; 0 on a dense model.
double experts_per_token(const RoutingByLayer& counts);

/// Nested lists of numbers, of any shape.
OrderedJson tensor_json(const at::Tensor& tensor);

}  // namespace evenkeel
