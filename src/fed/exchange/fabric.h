/// \file  How a server reaches its clients. A round hands over tasks and takes replies as they arrive; where the
/// clients are, and what carries the messages, is known to the fabric alone. Another way of reaching clients is another
/// Fabric.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "fed/exchange/message.h"

namespace evenkeel {

/// How far a client is, where its fabric can tell.
struct ClientProgress {
  int64_t client = 0;
  int64_t steps = 0, tokens = 0;    ///< Train: optimiser steps done, and tokens through the model by then
  std::string task{};               ///< Score: which
  double budget = 0;                ///< Score: at which budget
  int64_t rows_done = 0, rows = 0;  ///< Score
};

/// What the tasks of a round of training are made of: each is server.training_task(state, client, round). A fabric that
/// has a server wherever its clients are makes them there, and its replies bring what crossed (Reply::crossed).
struct TrainingRound {
  const ServerState& state;
  const RoundView& round;
};

/// One exchange as the server sees it. All are called by the thread that called Fabric::exchange(), one at a time.
struct Exchange {
  /// Asked when the client can take its task and no earlier, so that few are in memory at once.
  std::function<Task(const ClientProfile& client)> task_of;
  /// In order of arrival. A message may come twice: what is known already is not heard again.
  std::function<void(Reply reply)> on_reply;
  /// May throw Interrupted.
  std::function<void(const ClientProgress& progress)> on_progress{};
  /// What all hold alike, for a client that comes back without it.
  std::function<StateUpdate()> full_sync{};
  /// Of fabrics whose clients are strangers. \return how far the client moved, where that can be said
  /// \throws Error for a reply that is not what its task asked for.
  std::function<double(const ClientProfile& client, const Reply& reply)> check{};
  /// A client that will not reply any more. Without it, that is an error.
  std::function<void(int64_t client, const std::string& why)> on_loss{};
  std::optional<TrainingRound> training{};  ///< where the tasks are those of one
  bool encodes = false;                     ///< on_reply takes replies whose payload is still to be made (Reply::late)
};

/// Threads: one call at a time, from whichever thread; what a fabric runs side by side inside is its own matter.
class Fabric {
 public:
  virtual ~Fabric() = default;

  /// Sends `news` to each of `clients` and to the evaluator, who read it before any later task.
  virtual void announce(std::span<const ClientProfile> clients, const StateUpdate& news) = 0;

  /// Gives each of `clients` its task and waits until each has replied or is lost. \throws what a client failed with;
  /// kConfig for an addressee that this fabric does not reach (kPooledData).
  virtual void exchange(std::span<const ClientProfile> clients, const Exchange& exchange) = 0;

  /// What each client keeps of its own after the last committed round. Clients that keep it themselves need not be
  /// told.
  virtual void remember(const ClientMemories& /*memories*/) {}

  /// Offers what all clients hold alike (state.common), after the last committed round. \return whether those of this
  /// fabric take it from there, one copy for both sides: no news of it need reach them.
  virtual bool share(const ServerState& /*state*/) { return false; }

  /// Whether a client that is asked again for what it has replied costs its time and nothing else.
  virtual bool may_ask_again() const { return false; }

  /// Who takes part in the sums of a round when all have replied and some uploads stayed where they were made: each
  /// process that holds any aggregates them while the server does. Of a fabric all of whose replies bring their upload
  /// this is never asked.
  virtual const Reduction& sums(const RoundView& round);

  /// After an error of exchange(), or of what sums() gave: whether the fabric has put itself right, so that the same
  /// round can be run again.
  virtual bool recovers() { return false; }
};

}  // namespace evenkeel
