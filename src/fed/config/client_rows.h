/// \file  The training rows of a run: dealt out to its clients, or each client's own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/example.h"
#include "fed/config/experiment_config.h"
#include "tokenizer/tokenizer.h"

namespace evenkeel {

/// The training rows after tokenising.
struct Shards {
  std::vector<std::vector<Example>> examples;      ///< [client][row]
  std::vector<std::vector<int64_t>> rows;          ///< [client][row], index into the training set, or its own, as read
  std::vector<std::string> files;                  ///< what was read; empty when generated
  std::vector<std::vector<std::string>> files_of;  ///< [client], of clients that bring their own; else empty
  int64_t cut = 0;                                 ///< rows longer than the cutoff
  int64_t without_target = 0;                      ///< rows dropped because the cutoff left no target
};

/// Reads, tokenises and deals out the training rows. What is wrong with a client's own names the client, the file and
/// the line. \throws kConfig, kData
Shards make_shards(const ExperimentConfig& config, const Tokenizer& tokenizer, const ModelSpec& model);

}  // namespace evenkeel
