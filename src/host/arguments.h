/// \file  Describes the arguments of hooks to a host: small values as JSON, and a number for each object whose tensors
/// the host may ask for (host/objects.h).
#pragma once

#include <array>

#include "host/objects.h"

namespace evenkeel::host {

/// \param round  rounds done; -1: the run begins
OrderedJson to_host(Objects& objects, const methods::ServerView& server, int64_t round);
OrderedJson to_host(Objects& objects, const methods::ClientView& view);
/// \param each  true: also describes each upload
OrderedJson to_host(Objects& objects, const methods::Uploads& uploads, const methods::RoundView& round, bool each);
OrderedJson to_host(Objects& objects, const nn::RoutingByLayer& counts);
OrderedJson to_host(Objects& objects, const SharedPayload& payload);
OrderedJson to_host(Objects& objects, const SharedState& state);
OrderedJson to_host(Objects& objects, const SharedSetup& setup);
/// \param number  optimiser steps that the client has done in the round
OrderedJson to_host(Objects& objects, const methods::StepView& step, int64_t number);
OrderedJson to_host(const methods::RoundView& round);
OrderedJson to_host(const methods::ClientProfile& client);
OrderedJson to_host(const lora::Sites& sites);

/// Names in messages.
constexpr std::array kTrainables{config::EnumName{"ab", methods::Trainable::kAB},
                                 config::EnumName{"b", methods::Trainable::kB},
                                 config::EnumName{"core", methods::Trainable::kCore}};
constexpr std::array kModulations{config::EnumName{"candidate", nn::ModulationMode::kCandidate},
                                  config::EnumName{"preserve", nn::ModulationMode::kPreserve}};

}  // namespace evenkeel::host
