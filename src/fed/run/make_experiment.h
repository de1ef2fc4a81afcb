/// \file  Builds the server and the clients of a run from its config.
#pragma once

#include <functional>

#include "fed/run/experiment.h"

namespace evenkeel::fed {

/// Makes the server from the shapes of its model, without clients.
Server make_server(const RunConfig& config, const models::CausalLm& shape);

/// The purpose of an Experiment. It decides what is loaded.
enum class Purpose {
  kTrain,     ///< rows and weights
  kEvaluate,  ///< weights, no training rows
  kPrepare,   ///< as kEvaluate, but the weights are loaded later by load_weights()
  kDryRun,    ///< rows, and the shapes of the model without weights
  kServe,     ///< neither rows nor weights, because all clients are nodes
};

/// Builds server and clients and sets this process's number of threads. Cheap steps come first: rows, clients and, to
/// train, the memory check (fed/run/memory_estimate.h). The weights are loaded last.
/// \param check  called before the weights are loaded, e.g. check_evaluation(); may be empty
/// \throws kConfig, kData, kCheckpoint naming the file, the key and the allowed values
Experiment make_experiment(const RunConfig& config, Purpose purpose,
                           const std::function<void(const Experiment& e)>& check = {});
/// Builds an Experiment without weights whose clients have rows that were read before. \throws as make_experiment()
Experiment make_experiment_of_rows(const RunConfig& config, Shards rows);
/// Loads the weights of an Experiment that was made without them. \throws as make_experiment()
void load_weights(Experiment& e);

}  // namespace evenkeel::fed
