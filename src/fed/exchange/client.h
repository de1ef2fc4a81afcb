/// \file  Implements a client. Its replies depend only on the messages that it received, its own rows and its memory:
/// the tensors that it kept from its last round.
#pragma once

#include <functional>
#include <span>

#include "data/example.h"
#include "fed/exchange/client_context.h"
#include "fed/exchange/fabric.h"

namespace evenkeel::fed {

/// Receives progress during a task. It may throw to interrupt the task.
using OnProgress = std::function<void(const ClientProgress& progress)>;

/// A client during one task. Threads: several clients may use one ClientContext at the same time.
class Client {
 public:
  /// \param context   shared data of the process; borrowed
  /// \param rows    the client's training rows; borrowed; empty for a client that never trains
  /// \param memory  tensors that the client kept from its last round
  Client(const ClientContext& context, std::span<const data::Example> rows, TensorMap memory = {})
      : context_(context), rows_(rows), memory_(std::move(memory)) {}

  /// Carries out the task. The reply to a Train has a deferred upload. The reply depends only on the task,
  /// the rows, the memory and the shared state.
  /// \throws kData when the task needs rows that the client does not have; kNumeric; anything that `on_progress` throws
  Reply answer(const Task& task, const OnProgress& on_progress = {});

  /// Returns the adapters and router options that the method makes from the broadcast. Training and scoring both begin
  /// with this.
  methods::LocalSetup prepare(const Task& task);

 private:
  Reply answer(const Task& task, const Train& ask, const OnProgress& on_progress);
  Reply answer(const Task& task, const SumGradients& ask, const OnProgress& on_progress);
  Reply answer(const Task& task, const Score& ask, const OnProgress& on_progress);
  /// Returns the setup with which another program would run the adapter of the task.
  methods::LocalSetup exported(const Task& task, scoring::ServedBy by);
  lora::Payload download(const Task& task) const;
  methods::ClientView view(const Task& task);

  const ClientContext& context_;
  std::span<const data::Example> rows_;
  TensorMap memory_;
};

}  // namespace evenkeel::fed
