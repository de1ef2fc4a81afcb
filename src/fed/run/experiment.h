/// \file  Defines a run on one machine: the server, and a fabric with all its clients. fed/run/make_experiment.h builds
/// it from a config.
#pragma once

#include "fed/exchange/local_fabric.h"
#include "fed/round/server.h"

namespace evenkeel::fed {

/// A server with a fabric that holds all its clients.
struct Experiment {
  Server server;
  LocalFabric fabric;
};

}  // namespace evenkeel::fed
