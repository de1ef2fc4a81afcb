/// \file  A node at a SuperLink of Flower's, or at a coordinator of ours: joins, takes instructions, pulls what they
/// hold to where it belongs, pushes replies, leaves. Flower's Fleet protocol over HTTP/1.1. Example:
///   NodeLink link({.server = {.host = "server", .port = 8000, .ca_file = "ca.pem"}, .key_file = "node.pem"});
///   link.join();
///   while (!stopped())
///     if (const auto instruction = link.poll()) {
///       const Content content = link.receive(*instruction, place);
///       link.reply(*instruction, train(content));      // or link.refuse(*instruction, kPrecondition, "why")
///     } else link.rest();
///   link.leave();                                      // waits until the last reply was collected
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flower/format/flwr_message.h"
#include "flower/format/record_dict.h"
#include "flower/node/node_options.h"

namespace evenkeel::wire {

/// Transport errors and 502, 503, 504 are tried again with pauses that grow up to 20 s, for as long as it takes: a
/// server that is restarted is waited for. One thread uses a link; heartbeats have a thread and connection of their
/// own.
class NodeLink {
 public:
  /// Reads the key. \throws kConfig for options that make no sense, or neither TLS nor `insecure`.
  explicit NodeLink(NodeOptions options);
  ~NodeLink();  ///< stops the heartbeats; says nothing to the server, as a process that dies
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  /// Registers where the server keeps no list of keys, ends an earlier life of this key, activates, and keeps beating.
  /// \throws kConfig when the server knows neither key nor clock (401), or has the node online already; Stopped.
  void join();
  uint64_t id() const;  ///< of the node, once it has joined

  /// The next instruction, if there is one. The server forgets it with this call: whoever dies now never gets it again.
  /// \throws kConfig when the server does not accept this node any more; Stopped.
  std::optional<Instruction> poll();
  /// Waits before the next poll: the longer nothing was found, the longer.
  void rest();

  /// Pulls an instruction's structure, asks `place` where the arrays go, pulls them there, and says that all has
  /// arrived. What is wrong with it (also what `place` throws) is told to the server as an error reply.
  /// \throws what was wrong, RunOver, Stopped.
  Content receive(const Instruction& instruction, const BufferAllocator& place);

  /// Sends a reply. Hashed before it is announced; arrays are borrowed until this returns.
  /// \throws kData when the server takes none: it came too late, or there was one. RunOver, Stopped.
  void reply(const Instruction& instruction, const Content& content);
  /// Replies with an error of Flower's codes and one line of reason.
  void refuse(const Instruction& instruction, ErrorCode code, const std::string& reason);

  /// Whether the last reply was fetched by whoever asked (true without one). Until then leaving would lose it.
  bool collected();
  /// Waits until collected(), at most `patience_s` and whatever NodeOptions::stop says, then signs off, and unregisters
  /// if it had registered itself. A server that does not answer for ten seconds is left without a word.
  void leave(double patience_s = 600);

  /// Bytes of objects so far.
  uint64_t bytes_received() const;
  uint64_t bytes_sent() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::wire
