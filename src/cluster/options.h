/// \file  Defines the `[cluster]` section: how the ranks of a run reach each other. These options do not change results
/// and are not part of a run's config, so a run can be resumed with another number of ranks or without a cluster.
#pragma once

#include <cstdint>
#include <string>

#include "base/format/config_table.h"
#include "fed/store/run_request.h"

namespace evenkeel::cluster {

/// The options of `[cluster]`. The texts of visit() explain the keys.
struct ClusterOptions {
  int64_t size = 0;   ///< number of ranks; above 0 it overrides every launcher; 0: taken from the launcher
  int64_t rank = -1;  ///< rank of this process, 0 to size - 1; set together with size; -1: taken from the launcher
  std::string store;
  std::string device;
  double timeout = 60;         ///< seconds without a heartbeat or data after which a rank is lost; 0.5 to 86400
  double start_timeout = 300;  ///< seconds within which all ranks have to connect; 0.5 to 86400
  bool regroup = false;
  std::string scratch;  ///< folder for uploads of this rank's clients; empty: the system's temporary folder

  void visit(auto& field) {
    field("size", size, "number of ranks; 0: taken from the launcher");
    field("rank", rank, "rank of this process, from 0; set it only together with size");
    field("store", store,
          "HOST:PORT at which rank 0 serves the rendezvous of the ranks; empty: taken from the launcher");
    field("device", device, "network interface, e.g. eth0; empty: the one with the route to the store");
    field("timeout", timeout,
          "a rank counts as lost after this many seconds without a heartbeat or without data in an operation");
    field("start_timeout", start_timeout, "seconds within which all ranks must connect");
    field("regroup", regroup, "when a rank is lost, the others repeat the round without it; false: all ranks end");
    field("scratch", scratch,
          "folder for uploads that are kept on the rank that made them; empty: the system's temporary folder");
  }

  /// Checks the values. \throws kConfig.
  void resolve(const config::Table& table) const;

  /// Reads the section from the config file and the settings of `request`. \throws kConfig for an invalid value.
  static ClusterOptions of(const fed::RunRequest& request);
  /// Returns the section as TOML, with the meaning of each key.
  std::string text() const;
};

}  // namespace evenkeel::cluster
