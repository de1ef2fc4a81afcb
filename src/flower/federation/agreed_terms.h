/// \file  Says which keys of a run's config a node agrees to, and compares the offers of a run by them. A server may
/// offer a run again, with another config, after a restart. What a node trains and gives must then be the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_values.h"
#include "flower/federation/agreement.h"

namespace evenkeel::flower {

/// Returns true if a key may differ between two offers of one run, because it changes neither what the client trains
/// nor what its scores show. These are keys of the server's own work, such as deadlines, and keys that say when and at
/// which budgets the run is scored. train.rounds is not among them: it may only grow (changes_of()).
/// \param key     a key of ExperimentConfig::values()
/// \param client  the client that the node is
bool may_change(std::string_view key, int64_t client);

/// The terms of a run that a node agreed to.
struct AgreedTerms {
  int64_t client = 0;
  double budget = 1;
  int64_t examples = 0;
  std::string files;    ///< SHA-256 over the node's files of rows
  config::Values keys;  ///< values of the keys that may not change, as TOML, with the digest of the chat template

  void visit(auto& field) {  // base/format/record.h
    field("client", client);
    field("budget", budget);
    field("examples", examples);
    field("files", files);
    field("keys", keys);
  }
};

/// Returns the keys of an offer that may not change and their values, with train.rounds, the SHA-256 of the chat
/// template's text, and the SHA-256 of the source of a method in Python.
/// \throws kConfig when the offer's config cannot be read
config::Values agreed_keys(const Offer& offer);

/// Returns the SHA-256 over the keys of an offered config that may not change for any client, without train.rounds. It
/// is the same for all clients of a run and for all its processes.
/// \param config  Offer::config \throws kConfig when it cannot be read
std::string digest_of_run(const std::string& config);

/// Lists the keys whose values differ as "key is VALUE, agreed on: VALUE". More rounds than before are not listed.
std::vector<std::string> changes_of(const config::Values& offered, const config::Values& agreed);

}  // namespace evenkeel::flower
