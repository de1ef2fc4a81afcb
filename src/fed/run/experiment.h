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

  /// Replaces the config of server and clients. Model, method and profiles, which were made from the old config, stay.
  void use(const RunConfig& config) { server.config = fabric.context.config = config; }
};

}  // namespace evenkeel::fed
