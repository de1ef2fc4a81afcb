/// \file  A run on one machine: the server, and a fabric with all its clients, built from one config.
#pragma once

#include <functional>

#include "fed/exchange/local_fabric.h"
#include "fed/round/server.h"
#include "fed/store/run_checkpoint.h"

namespace evenkeel {

/// The server alone, from the shapes of its model, and without clients.
Server make_server(const ExperimentConfig& config, const CausalLm& shape);

struct Experiment {
  Server server;
  LocalFabric fabric;
};

enum class Purpose {
  kTrain,
  kEvaluate,  ///< no rows
  kDryRun,    ///< rows, but a model without weights (load_shape)
  kServe,     ///< neither rows nor weights: clients are elsewhere, and nothing is evaluated here
};

/// Builds everything, and sets this process' threads to what the config says. `config` is settled. What
/// costs little comes first: rows, clients and, to train, whether memory suffices (fed/run/memory_estimate.h); then the
/// weights. \param check  more to be checked before the weights are there, e.g. check_evaluation()
/// \throws kConfig, kData, kCheckpoint naming the file, the key and what was allowed.
Experiment make_experiment(ExperimentConfig config, Purpose purpose,
                           const std::function<void(const Experiment& e)>& check = {});

}  // namespace evenkeel
