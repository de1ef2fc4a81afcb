/// \file  What all ranks of a run must have alike: config, data, base weights, sites, program.
#pragma once

#include <string>
#include <vector>

#include "cluster/process_group.h"
#include "fed/run/experiment.h"

namespace evenkeel::cluster {

std::string host_name();

/// Digests, and where they were made.
struct Identity {
  std::string host, processor;
  std::string config, data, base, layout, build;

  void visit(auto& field) {  // base/format/record.h
    field("host", host);
    field("processor", processor);
    field("config", config);
    field("data", data);
    field("base", base);
    field("layout", layout);
    field("build", build);
  }
};

/// Cost: one read of all input files.
Identity identity_of(const Experiment& experiment);

/// A line per rank that has something else than rank 0: who, what. Empty: all are alike.
std::vector<std::string> differences(const std::vector<Identity>& ranks);

/// Exchanges identities with all ranks. \throws kConfig naming who differs in what; a log line per rank on rank 0
/// \return by rank
std::vector<Identity> meet(ProcessGroup& member, const Experiment& experiment);

}  // namespace evenkeel::cluster
