/// \file  Loads the adapter that a run starts from ([lora] init) and makes the state before the first round.
#pragma once

#include "fed/round/server.h"

namespace evenkeel::fed {

/// Loads the factors of the run's sites from the adapter that `[lora] init` names; empty if it names none.
/// \throws kConfig when the method cannot start from an adapter, the path is not a folder, or the adapter has factors
/// of other sites; kCheckpoint when the adapter does not fit the model
lora::AdapterState adapter_to_start_from(const Server& server);

/// Returns the state that the method initialises, with the adapter of `[lora] init` if there is one.
/// \throws as adapter_to_start_from(); kConfig when the adapter's rank is higher than the method takes, when the state
/// does not change the weights as the adapter does, and when it has a change of the base
methods::ServerState first_state(const Server& server, methods::GradientSum gradient_sum = {});

/// Makes the state before the first round. Gradients that the method asks for are computed by the clients, for the
/// sites of one layer at a time (up to 2 GiB).
/// \param sent  grows by the lengths of the clients' replies; null: they are not counted
methods::ServerState initial_state(const Server& server, Fabric& fabric, OtherTraffic* sent = nullptr);

/// Checks `[lora] init` before training: loads the adapter and initialises the method with it. Does nothing if no
/// adapter is named. Warns if the adapter lacks some of the run's sites.
/// \throws as first_state()
void check_start(const Server& server);

}  // namespace evenkeel::fed
