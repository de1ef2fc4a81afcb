/// \file  Shows the examples of a run as training sees them: text, token ids, targets of the loss, and what was cut.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel::apps {

/// What is shown of a run's examples.
struct PreviewOptions {
  int64_t rows = 10;     ///< at most so many rows of each client; 0: all
  std::string client{};  ///< name or number of the only client that is shown; empty: all
  bool json = false;     ///< true: one JSON line per row; false: text
};

/// Prints the examples of each client's training, then the rows that are left out. The examples are made as for
/// training (fed/run/make_experiment.h), without the weights.
/// \throws as training does before its first round, and kConfig for an unknown client
void print_training_examples(const fed::ExperimentConfig& asked, const PreviewOptions& options);

}  // namespace evenkeel::apps
