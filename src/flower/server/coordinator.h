/// \file  Implements a server of Flower's Fleet protocol, for nodes of evenkeel and stock `flower-supernode`s. It
/// delivers messages and writes the arrays of replies straight to their buffers. It has no Control or Runtime API and
/// needs no Python. Example:
///   Coordinator coordinator({.host = "0.0.0.0", .port = 8000, .tls = TlsFiles{"server.pem", "server.key"},
///                            .allowed = read_allow_list("keys.txt"), .folder = run / "federation"});
///   for (const auto& node : coordinator.nodes())
///     if (node.online) coordinator.send(node.id, content, {.type = "train", .group = "1", .place = place});
///   while (const auto arrival = coordinator.wait(deadline)) fold(*arrival);
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flower/format/record_dict.h"
#include "flower/server/coordinator_options.h"

namespace evenkeel::flower {

/// Runs one listening server. Any thread may call; only one thread at a time may be in wait().
class Coordinator {
 public:
  /// Starts listening. \throws kConfig for invalid options or files, kIo when the port is taken, kCheckpoint when
  /// nodes.json is damaged
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  /// Returns the port on which the server listens.
  int port() const;
  uint64_t run_id() const;  ///< id of the run; stored in the folder, so it survives a restart

  /// Returns all nodes that are allowed or have registered, by id, whether online or not.
  std::vector<NodeInfo> nodes() const;

  /// Returns true if the key with this fingerprint may call.
  bool admits(const std::string& fingerprint) const;

  /// Puts a message into a node's mailbox, from which the node fetches it. Arrays are borrowed until the node has
  /// received all of them or the message is done. Pack arrays once to send them to many nodes. A message to a node that
  /// is not registered, or not any more, is lost. \returns the message's id
  /// \throws kData for a node that has NodeLimits::open_messages unanswered messages
  std::string send(uint64_t node, const Content& content, SendOptions options);
  /// Gives a message up: a later reply to it is refused. Blocks until no call uses the buffers of the message any more,
  /// so that the caller may free them.
  void forget(const std::string& message_id);

  /// Waits for the next result of a message, in order of arrival. Returns nothing when the deadline has passed. Every
  /// message that was sent and not forgotten has exactly one result.
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point deadline);

  /// Ends the run for the nodes: their calls for it are answered with 403/2007, and polls find no message.
  void end_run();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::flower
