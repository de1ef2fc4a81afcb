/// \file  Reads the training rows of a run, which are either divided among its clients or owned by each client.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/example.h"
#include "data/row_files.h"
#include "fed/config/experiment_config.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel::fed {

/// The tokenized training rows by client.
struct Shards {
  std::vector<std::vector<data::Example>> examples;  ///< [client][row]
  std::vector<std::vector<int64_t>> rows;  ///< [client][row], index into the training set or the client's own rows
  std::vector<std::string> files;          ///< files that were read; empty for generated rows
  std::vector<std::vector<std::string>> files_of;  ///< [client], if clients have their own rows; else empty
  int64_t cut = 0;                                 ///< number of rows longer than data.cutoff
  int64_t without_target = 0;  ///< number of rows dropped because the cutoff removed their whole answer
};

/// Reads the rows that a client trains on, or all rows of `[data]` if clients have no rows of their own. Shards::rows
/// are indices into the result. \param client  in [0, clients.count) \throws as make_shards()
data::TaskRows training_set(const ExperimentConfig& config, int64_t client);

/// Reads and tokenizes the training rows and divides them among the clients.
/// \throws kConfig, kData for files that are missing or rows that cannot be read or divided. Errors in a client's own
/// rows name the client, the file and the line
Shards make_shards(const ExperimentConfig& config, const tokenizer::Tokenizer& tokenizer,
                   const models::ModelSpec& model);

}  // namespace evenkeel::fed
