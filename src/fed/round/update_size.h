/// \file  Measures how far a client's upload is from what the client began its round with.
#pragma once

#include "fed/round/server.h"

namespace evenkeel::fed {

/// Returns the names, dtypes and shapes of the upload of a client after a round on `download`. Factors have no storage
/// (device meta); the values of extras have no meaning. Sites are prepared one at a time to save memory, if the method
/// can (MethodEntry::by_site).
lora::Payload expected_upload(const Server& server, const methods::ServerState& state,
                              const methods::ClientProfile& client, const lora::Payload& download);

/// Returns the Frobenius norm of what `client` added in a round: sent - begun, over all factors and over the extras
/// that the server sends and the client trains (phi of UB-SMoE). `begun` is the upload that the client would have made
/// without a step of training, so values that it inherits, cuts, rescales or draws (FLoRA) do not count. If the ranks
/// differ, because a client pruned its rank (HetLoRA), only the components that both have are compared.
/// \param sent  an upload with the sites of the method
/// \return      not finite if a value of `sent` is not
/// \throws kShape when a site or factor is missing
/// Cost: one read of the upload; the memory of one site, or of all (MethodEntry::by_site).
double update_norm(const Server& server, const methods::ServerState& state, const methods::ClientProfile& client,
                   const lora::Payload& sent);

/// Returns the Frobenius norm of sent - begun over the factors and components that both have.
double update_norm(const lora::Payload& sent, const lora::Payload& begun);

/// Returns how far an optimiser moves the tensors of an upload at most in `steps` steps, up to a small factor: with
/// AdamW, lr * steps * sqrt(n) for n values, because each step moves a value by about lr; with SGD and a limit of the
/// gradient's norm, lr * steps * max_grad_norm / (1 - momentum).
/// \param lr  the learning rate of the round
/// \return    0 if there is no bound: SGD without such a limit
double reach_of(const train::LocalTraining& training, double lr, int64_t steps, const lora::Payload& sent);

}  // namespace evenkeel::fed
