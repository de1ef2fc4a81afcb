/// \file  Checks that all ranks of a run have the same config, data, base weights, adapter sites (layers that adapters
/// are added to) and program.
#pragma once

#include <string>
#include <vector>

#include "cluster/process_group.h"
#include "fed/run/experiment.h"

namespace evenkeel::cluster {

/// Digests of everything that must be equal on all ranks, and the machine that computed them.
struct Identity {
  std::string host, processor;
  /// Digests of: config, the settled config; method, the code of a method in Python, or "compiled"; data, the rows and
  /// their files; base, the model files; layout, names and sizes of adapter sites; build, the version, LibTorch,
  /// compiler and program file.
  std::string config, method, data, base, layout, build;

  void visit(auto& field) {  // base/format/record.h
    field("host", host);
    field("processor", processor);
    field("config", config);
    field("method", method);
    field("data", data);
    field("base", base);
    field("layout", layout);
    field("build", build);
  }
};

/// Computes the digests. Cost: reads all input files, except large files whose fingerprint is cached.
Identity identity_of(const fed::Experiment& experiment);

/// Returns one line for each rank that differs from rank 0, naming the rank and the digests. An empty result means that
/// all are equal.
std::vector<std::string> differences(const std::vector<Identity>& ranks);

/// Exchanges identities with all ranks and returns them by rank. Waits for all ranks. Rank 0 logs differences, and
/// warns when processors differ.
/// \throws kConfig naming the ranks that differ; as ProcessGroup::check() while it waits
std::vector<Identity> meet(ProcessGroup& member, const fed::Experiment& experiment);

}  // namespace evenkeel::cluster
