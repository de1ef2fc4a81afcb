/// \file  Implements a client. A reply depends only on the task, the client's own rows, its memory (the tensors that it
/// kept from its last round) and the shared state: what the server has sent to all clients (ClientContext::shared).
#pragma once

#include <functional>
#include <memory>
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
  /// \param memory  tensors that the client kept from its last round. The tensors that it keeps from this round are in
  ///                 Reply::memory of the answer to a Train.
  Client(const ClientContext& context, std::span<const data::Example> rows, TensorMap memory = {})
      : context_(context), rows_(rows), memory_(std::move(memory)) {}

  /// Carries out the task. The upload of a Train is deferred: tensors that are not encoded yet (fed/exchange/upload.h).
  /// \throws kData when the task needs rows that the client does not have; kNumeric when a loss, a gradient or a score
  /// is not finite; kConfig when the client's privacy does not allow the task; anything that `on_progress` throws
  Reply answer(const Task& task, const OnProgress& on_progress = {});

  /// Returns the adapters and router options that the method makes from the broadcast. Training and scoring both begin
  /// with this.
  methods::LocalSetup prepare(const Task& task);

 private:
  Reply answer(const Task& task, const Train& ask, const OnProgress& on_progress);
  train::LocalResult trained(const Task& task, const Train& ask, const lora::Payload& sent,
                             const OnProgress& on_progress);
  /// Trains, unless the client has kept what it trained for the same task.
  train::LocalResult train_once(const Task& task, const Train& ask, const lora::Payload& sent,
                                const OnProgress& on_progress);
  /// Returns the upload of a round in which single uploads stay hidden, masked if the run simulates masks.
  lora::Payload summed(const Task& task, const SummedTerms& terms, const lora::Payload& received,
                       const train::LocalResult& trained) const;
  secure::RingVector summand(const Task& task, const SummedTerms& terms, const TrainedPart& trained) const;
  Reply answer(const Task& task, const SumGradients& ask, const OnProgress& on_progress);
  Reply answer(const Task& task, const Score& ask, const OnProgress& on_progress);
  /// Returns the adapter of the task with the routing that program `by` would use: no phi, no rescaler, and the
  /// program's gate weights.
  methods::LocalSetup exported(const Task& task, scoring::ServedBy by);
  /// Charges the privacy account for a round of private training.
  std::shared_ptr<const train::PrivateSteps> private_steps(const Task& task, const train::LocalTraining& training);
  lora::Payload download(const Task& task) const;
  methods::ClientView view(const Task& task);

  const ClientContext& context_;
  std::span<const data::Example> rows_;
  TensorMap memory_;
};

}  // namespace evenkeel::fed
