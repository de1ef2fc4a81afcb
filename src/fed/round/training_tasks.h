/// \file  Makes the training tasks of a round and records what each client was sent. The server's process makes the
/// tasks of all participants. In a cluster, each rank makes the tasks of the clients that it trains.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "fed/round/server.h"
#include "fed/store/journal.h"

namespace evenkeel::fed {

/// The training tasks of one round that this process has given out.
class TrainingTasks {
 public:
  /// Server and state are borrowed. \param round  the round with all its participants
  TrainingTasks(const Server& server, const methods::ServerState& state, methods::RoundView round)
      : server_(server), state_(state), round_(std::move(round)) {}

  /// Makes the task of a client and begins its record. Equal payloads are encoded once.
  Task make(const methods::ClientProfile& client);
  /// Returns the client's record with the report of its reply. If Reply::task_size is set, another process of a cluster
  /// made the task, and its size is taken from there; such a reply is always accepted. Otherwise returns nullopt if
  /// make() has not made the client's task, or if the task was withdrawn.
  /// \throws kData when the reply holds another kind of report
  std::optional<ClientRecord> record_of(const Reply& reply) const;
  /// Forgets the task of a client that is lost. \return the size of its payload; 0 if it got none
  int64_t withdraw(int64_t client);

 private:
  const Server& server_;
  const methods::ServerState& state_;
  methods::RoundView round_;
  Broadcasts broadcasts_;
  std::map<int64_t, ClientRecord> records_;  // by client, without reports
};

}  // namespace evenkeel::fed
