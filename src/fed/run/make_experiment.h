/// \file  Builds the server and the clients of a run from its config.
#pragma once

#include <functional>

#include "fed/run/experiment.h"

namespace evenkeel {

/// The server alone, from the shapes of its model, and without clients.
Server make_server(const ExperimentConfig& config, const CausalLm& shape);

enum class Purpose {
  kTrain,
  kEvaluate,  ///< no rows
  kPrepare,   ///< as kEvaluate, but the weights come later (load_weights)
  kDryRun,    ///< rows, but a model without weights (load_shape)
  kServe,     ///< neither rows nor weights: clients are elsewhere, and nothing is evaluated here
};

/// Builds everything, and sets this process' threads to what the config says. `config` is settled. What
/// costs little comes first: rows, clients and, to train, whether memory suffices (fed/run/memory_estimate.h); then the
/// weights. \param check  more to be checked before the weights are there, e.g. check_evaluation()
/// \throws kConfig, kData, kCheckpoint naming the file, the key and what was allowed.
Experiment make_experiment(ExperimentConfig config, Purpose purpose,
                           const std::function<void(const Experiment& e)>& check = {});
/// The weights in the place of the shapes, for what was made without. \throws as make_experiment()
void load_weights(Experiment& e);

}  // namespace evenkeel
