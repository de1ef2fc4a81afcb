/// \file  Declares the interface between a server and its clients, the transport of messages. The server gives a fabric
/// the tasks of a round and receives the replies as they arrive. Only the fabric knows where the clients are and how
/// messages are sent. A new transport is a new subclass of Fabric.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "fed/exchange/message.h"
#include "methods/uploads.h"
#include "secure/masks.h"
#include "secure/ring.h"

namespace evenkeel::fed {

/// Progress of one client, reported by fabrics that can observe it.
struct ClientProgress {
  int64_t client = 0;
  int64_t steps = 0, tokens = 0;    ///< Train: optimiser steps and tokens done so far
  std::string task{};               ///< Score: name of the task
  double budget = 0;                ///< Score: budget of the evaluation
  int64_t rows_done = 0, rows = 0;  ///< Score: rows answered, rows in all
  /// Score on nodes, which do not report single rows: clients whose scores have arrived, and all clients that are
  /// asked. `task` is empty then.
  int64_t clients_done = 0, clients = 0;
};

/// Inputs of the training tasks of a round: the task of a client is server.training_task(state, client, round). A
/// cluster makes the tasks in the processes of the clients, which have a copy of the server. Its replies then report
/// the size of the task in Reply::task_size.
struct TrainingRound {
  const methods::ServerState& state;
  const methods::RoundView& round;
};

/// Callbacks of one exchange. Fabric::exchange() calls them one at a time, in the thread that called it.
struct Exchange {
  /// Makes the task of a client. The fabric calls it only when the client can take the task, so few tasks are in memory
  /// at once.
  std::function<Task(const methods::ClientProfile& client)> task_of;
  /// Receives replies in order of arrival. A reply may arrive twice; the callback must ignore the second.
  std::function<void(Reply reply)> on_reply;
  /// Receives progress. It may throw Interrupted to stop the exchange.
  std::function<void(const ClientProgress& progress)> on_progress{};
  /// Makes the full sync for a client that returns without the shared state.
  std::function<StateUpdate()> full_sync{};
  /// Checks a reply from an untrusted client (nodes).
  /// \return how far the client's adapter moved (update_norm() in fed/round/update_size.h); nullopt if the reply has
  /// no adapter
  /// \throws Error when the reply is not what its task asked for
  std::function<std::optional<double>(const methods::ClientProfile& client, const Reply& reply)> check{};
  /// Reports a client that will not reply any more. If empty, the loss of a client is an error.
  std::function<void(int64_t client, const std::string& why)> on_lost{};
  std::optional<TrainingRound> training{};  ///< set when the tasks are training tasks
  /// Discards the round's uploads that have arrived: all its clients are asked again. Set with `training`.
  std::function<void()> discard{};
  /// True: on_reply encodes uploads itself, so a reply may have a deferred upload (fed/exchange/upload.h).
  bool encodes = false;
};

/// The sum of a round whose clients mask their uploads with keys of their own.
struct UnmaskedSum {
  std::vector<int64_t> roster;  ///< ids of the clients that agreed on masks; their weights add up to 1
  secure::RingVector sum;       ///< sum of the summands of the round's clients
  secure::RingFormat format;    ///< of the sum's values, as these clients agreed
};

/// Interface of a transport. Threads: callers make one call at a time, from any thread. An implementation may use
/// several threads inside a call.
class Fabric {
 public:
  virtual ~Fabric() = default;

  /// Sends `news` to each of `clients` and to the evaluation client (kEvaluator). They apply it before any later task.
  virtual void announce(std::span<const methods::ClientProfile> clients, const StateUpdate& news) = 0;

  /// Gives each of `clients` its task and returns when each has replied or is lost.
  /// \throws the error of a client that failed; kConfig for kPooledData, the client that owns the rows of all clients,
  /// where the fabric has no such client
  virtual void exchange(std::span<const methods::ClientProfile> clients, const Exchange& exchange) = 0;

  /// Passes on the clients' memories as of the last committed round. Fabrics whose clients store their own memory
  /// ignore it.
  virtual void remember(const ClientMemories& /*memories*/) {}

  /// Offers the shared state (state.common) after the last committed round. `state` is borrowed for the call; tensors
  /// that the fabric keeps share its storage.
  /// \return true if the clients of this fabric use it, so that no StateUpdate needs to be sent to them
  virtual bool share(const methods::ServerState& /*state*/) { return false; }

  /// Returns true if a client can be asked for the same reply again at no other cost than its time. Then replies need
  /// not be flushed to disk one by one: replies lost in a power failure are computed again.
  virtual bool may_ask_again() const { return false; }

  /// Returns the reduction over all processes that hold uploads of `round`. The server calls it after all replies have
  /// arrived, when some uploads stayed in the process that made them (RemoteUpload). Each process with such uploads
  /// aggregates at the same time as the server. It is never called on fabrics whose replies always contain the upload,
  /// where it throws kInternal. The result is valid until the next call of the fabric.
  virtual const lora::Reduction& sums(const methods::RoundView& round);

  /// Takes the masks off the sum of a round, where the clients have keys of their own.
  /// \param round    the round without lost clients \param updates  their masked uploads
  /// \return nullopt if the clients of this fabric have no such keys
  /// \throws kData when too few clients help
  virtual std::optional<UnmaskedSum> unmasked(const methods::RoundView& /*round*/,
                                              std::span<const methods::ClientUpdate> /*updates*/) {
    return {};
  }

  /// Notes that a client's reply has arrived but is not part of the round.
  /// \param why  the reason \param moved  norm of its update
  /// \return the name of the client's node; empty: this fabric has no nodes
  virtual std::string note_left_out(int64_t /*round*/, int64_t /*client*/, const std::string& /*why*/,
                                    double /*moved*/) {
    return {};
  }

  /// Tries to recover after an error of exchange() or of the reduction of sums().
  /// \return true if the fabric has recovered, so that the same round can be run again
  virtual bool recover() { return false; }
};

}  // namespace evenkeel::fed
