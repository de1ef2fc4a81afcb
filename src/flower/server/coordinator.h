/// \file  A server of Flower's Fleet protocol: nodes of ours and stock `flower-supernode`s join it, take what is sent
/// to them, and what they reply is put where it belongs as it arrives. No Control or Runtime API, no Python. Example:
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

namespace evenkeel::wire {

/// One object is one listening server. Any thread may call; waiting is for one at a time.
class Coordinator {
 public:
  /// Listens from now on. \throws kConfig for options that make no sense or files that do not fit, kIo when the port
  /// is taken, kCheckpoint when nodes.json is damaged.
  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  int port() const;
  uint64_t run_id() const;  ///< of this folder, the same after a restart

  /// All that have registered or are allowed and were activated once, by id.
  std::vector<NodeInfo> nodes() const;

  /// Puts a message into a node's mailbox; it comes for it by itself. Arrays are borrowed until the node has them all,
  /// or the message is done: pack once and send to many. \returns the message's id.
  /// \throws kData for a node that is not known, or that has NodeLimits::open_messages already.
  std::string send(uint64_t node, const Content& content, SendOptions options);
  /// Nothing more is heard of the message; a reply to it is refused. What its places belong to is let go before this
  /// returns.
  void forget(const std::string& message_id);

  /// The next thing that became of a message, in the order in which it did; nothing when the deadline is there before.
  /// Every message that was sent and not forgotten is reported once.
  std::optional<Arrival> wait(std::chrono::steady_clock::time_point deadline);

  /// Ends the run for the nodes: whoever pulls or pushes for it is told so (403/2007), polls find nothing.
  void end_run();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::wire
