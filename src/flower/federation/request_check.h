/// \file  Checks every field of a request against the config that node and server agreed on. Refused are: another
/// client, K, budget or rank, a round that the run does not have, another learning rate, gradients of another sample,
/// scores at other points, predictions, and scores on rows that are not the client's.
#pragma once

#include <optional>
#include <string>

#include "fed/exchange/message.h"
#include "fed/round/server.h"

namespace evenkeel::flower {

/// Returns the sample of rows whose gradients the method asks for before round 1; nothing if it asks for none.
std::optional<methods::GradientSample> agreed_sample(const fed::Server& server);

/// Checks that a header has only fields that this program reads. A field that is ignored would be answered as if it
/// were not there.
/// \param received  the header as it came
/// \param read      the header of the message that was read from it
/// \throws kData naming the field
void check_fields(const std::string& received, const std::string& read);

/// Checks a task. \param self  the profile that the node agreed to
/// \throws kData naming what was asked and what was agreed on
void check_request(const fed::Server& server, const methods::ClientProfile& self, const fed::Task& task);

/// Checks an update of the shared state, without its payload. \throws kData as for a task
void check_request(const fed::Server& server, const fed::StateUpdate& news);

}  // namespace evenkeel::flower
