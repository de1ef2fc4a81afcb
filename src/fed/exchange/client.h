/// \file  A client: it answers tasks from what it was sent, its own rows and its own memory, and from nothing else.
#pragma once

#include <functional>
#include <span>

#include "data/example.h"
#include "fed/exchange/client_context.h"
#include "fed/exchange/fabric.h"

namespace evenkeel {

using OnProgress = std::function<void(const ClientProgress& progress)>;

/// Between a task and its reply. Threads: clients of one workplace may answer side by side.
class Client {
 public:
  /// \param rows    its shard; empty for one that never trains. Both are borrowed, `memory` is copied
  Client(const ClientContext& place, std::span<const Example> rows, TensorMap memory = {})
      : place_(place), rows_(rows), memory_(std::move(memory)) {}

  /// Does what the task asks; the payload of a Train is still to be made (Reply::late). The reply depends on the task,
  /// the rows, the memory and the news so far alone.
  /// \throws kData where a task needs rows that are not there, kNumeric, and whatever `on_progress` throws.
  Reply answer(const Task& task, const OnProgress& on_progress = {});

  /// The first half of every answer but a sum of gradients: adapters and router options, as the method makes them of
  /// the broadcast.
  LocalSetup prepare(const Task& task);

 private:
  Reply answer(const Task& task, const Train& ask, const OnProgress& on_progress);
  Reply answer(const Task& task, const SumGradients& ask, const OnProgress& on_progress);
  Reply answer(const Task& task, const Score& ask, const OnProgress& on_progress);
  /// What another program makes of the adapter in the task.
  LocalSetup exported(const Task& task, ServedBy by);
  Payload download(const Task& task) const;
  ClientView view(const Task& task);

  const ClientContext& place_;
  std::span<const Example> rows_;
  TensorMap memory_;
};

}  // namespace evenkeel
