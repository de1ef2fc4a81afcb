/// \file  Implements a fabric with all clients in this process. They share one frozen base and one copy of the shared
/// state, so each client adds only its private data to the memory.
#pragma once

#include <vector>

#include "fed/config/client_rows.h"
#include "fed/exchange/client.h"
#include "fed/exchange/client_context.h"
#include "fed/exchange/fabric.h"

namespace evenkeel::fed {

/// Runs the tasks of its clients, of the client that owns all rows (kPooledData), and of the evaluation client.
struct LocalFabric : Fabric {
  explicit LocalFabric(ClientContext shared) : context(std::move(shared)) {}

  ClientContext context;
  Shards shards;                                ///< training rows by client; empty if nobody trains
  std::vector<methods::ClientProfile> clients;  ///< owners of `shards`, in the same order
  ClientMemories memories;                      ///< as of the last committed round

  /// Updates the one shared copy; `to` is ignored.
  void announce(std::span<const methods::ClientProfile> to, const StateUpdate& news) override;
  /// Runs the clients in the order of `to`. With clients.parallel above 1, that many train at the same time, each in
  /// its own thread, and on_reply receives replies in the order in which clients end. No client is ever lost: the error
  /// of a client is thrown. Errors of training name round, client and method.
  void exchange(std::span<const methods::ClientProfile> to, const Exchange& exchange) override;
  void remember(const ClientMemories& now) override { memories = now; }
  bool share(const methods::ServerState& state) override;
  bool may_ask_again() const override { return true; }

 private:
  Reply answer(const Task& task, const OnProgress& on_progress) const;
  Reply answer_of_pool(const Task& task) const;
};

}  // namespace evenkeel::fed
