/// \file  All clients on this machine: one frozen base and one copy of what everybody holds alike, so that memory does
/// not grow with their number but for what each keeps of its own.
#pragma once

#include <vector>

#include "fed/config/client_rows.h"
#include "fed/exchange/client.h"
#include "fed/exchange/client_context.h"
#include "fed/exchange/fabric.h"

namespace evenkeel {

/// Answers for its clients, for the pool of their rows, and as an evaluator.
struct LocalFabric : Fabric {
  explicit LocalFabric(ClientContext workplace) : place(std::move(workplace)) {}

  ClientContext place;
  Shards shards;                       ///< empty where nobody trains
  std::vector<ClientProfile> clients;  ///< whose rows these are
  ClientMemories memories;             ///< after the last committed round; a reply brings the next

  /// All read the one copy.
  void announce(std::span<const ClientProfile> to, const StateUpdate& news) override;
  /// In the order of `to`, as many side by side as clients.parallel says, each in a thread of its own then. An error of
  /// training names round, client and method.
  void exchange(std::span<const ClientProfile> to, const Exchange& exchange) override;
  void remember(const ClientMemories& now) override { memories = now; }
  bool share(const ServerState& state) override;
  bool may_ask_again() const override { return true; }

 private:
  Reply answer(const Task& task, const OnProgress& on_progress) const;
  Reply answer_of_pool(const Task& task) const;
};

}  // namespace evenkeel
