/// \file  The adapter that a run starts from ([lora] init), and the state before its first round.
#pragma once

#include "fed/round/server.h"

namespace evenkeel {

/// What `[lora] init` names, of the run's sites; empty where it names nothing.
/// \throws kConfig for a method that cannot start from an adapter, kCheckpoint for one that does not fit, naming both.
AdapterState adapter_to_start_from(const Server& server);

/// The state that the method makes of it. \throws as above; kConfig where its effect is not that of the adapter.
ServerState begun(const Server& server, GradientSum gradient_sum = {});

/// The state before the first round. Gradients that the method begins with are asked of the clients through `fabric`,
/// site by site. \param sent  grows by the lengths of their replies; null: nobody counts
ServerState initial_state(const Server& server, Fabric& fabric, OtherTraffic* sent = nullptr);

/// Finds out whether that works, before anything else is done. Without `[lora] init` there is nothing to find out.
/// Warns of sites that the adapter lacks.
void check_start(const Server& server);

}  // namespace evenkeel
