/// \file  Checks every field of a request against the config that node and server agreed on. What is not in it is
/// refused: another client, K, budget or rank, a round that the run does not have, another learning rate, gradients of
/// another sample, scores at other points, predictions, and scores on rows that are not the client's.
#pragma once

#include "fed/exchange/message.h"
#include "fed/round/server.h"

namespace evenkeel::flower {

/// Checks a task. \param self  the profile that the node agreed to
/// \throws kData naming what was asked and what was agreed on
void check_request(const fed::Server& server, const methods::ClientProfile& self, const fed::Task& task);

/// Checks an update of the shared state, without its payload. \throws kData likewise
void check_request(const fed::Server& server, const fed::StateUpdate& news);

}  // namespace evenkeel::flower
