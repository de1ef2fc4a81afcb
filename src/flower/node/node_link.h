/// \file  Connects a node to a SuperLink of Flower or a coordinator of evenkeel, with Flower's Fleet protocol over
/// HTTP/1.1. A link joins, fetches instructions, receives their arrays directly in buffers, sends replies and leaves.
/// Example:
///   NodeLink link({.server = {.host = "server", .port = 8000, .ca_file = "ca.pem"}, .key_file = "node.pem",
///                  .folder = "node"});
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

namespace evenkeel::flower {

/// Connects one node to its server. Calls are retried without limit after temporary errors (Answer::passing()), with
/// pauses of up to 20 s, so a server may be restarted. One thread uses a link; heartbeats have their own thread and
/// connection.
class NodeLink {
 public:
  /// Reads the key. \throws kConfig for invalid options, or without TLS unless `insecure` is set
  explicit NodeLink(NodeOptions options);
  ~NodeLink();  ///< stops the heartbeats without signing off, like a crash
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  /// Joins the server: registers the key if the server has no allow-list, signs off an earlier process with this key,
  /// activates the node and starts the heartbeats. \throws kConfig when the server does not accept the key or the clock
  /// (401), or when the node is already online; kIo when another process uses NodeOptions::folder; Stopped
  void join();
  uint64_t id() const;  ///< id of the node; valid after join()

  /// Fetches the next instruction, if there is one. The server may deliver an instruction only once: if this process
  /// dies, the instruction can be lost. If the server has forgotten the node (401), joins again and returns nothing.
  /// \throws kConfig when the server refuses the call or join(); Stopped
  std::optional<Instruction> poll();
  /// Waits before the next poll. The pause grows with the time since the last instruction. \throws Stopped
  /// \param brisk  true: shorter pauses at first, because more instructions are to come
  void rest(bool brisk = false);

  /// Receives an instruction's content: pulls its structure, calls `place` for buffers, pulls the arrays into them and
  /// confirms receipt. An Error, also one of `place`, is sent to the server as an error reply and rethrown. \throws
  /// Error, RunOver, Stopped
  Content receive(const Instruction& instruction, const BufferAllocator& place);

  /// Hashes, announces and sends a reply. Arrays are borrowed until this returns. \throws kData when the server refuses
  /// it (too late, or a second reply); RunOver, Stopped
  void reply(const Instruction& instruction, const Content& content);
  /// Sends an error reply with a code of Flower and a reason of one line. \throws as reply()
  void refuse(const Instruction& instruction, ErrorCode code, const std::string& reason);

  /// Returns true if the last reply was fetched from the server, or if there was none. Leaving earlier would lose the
  /// reply.
  bool collected();
  /// Returns for how many seconds the server has not answered; 0 while it answers. Any thread may ask.
  double silent_s() const;
  /// Tells the server that this process ends now, so that the node does not count as online any more. Does nothing
  /// before join(), or while the server still holds the last reply, which Flower's SuperLink would drop. Takes up to
  /// five seconds.
  void sign_off();
  /// Waits at most `patience_s` until collected(), then signs off, and unregisters if join() registered. Meanwhile
  /// NodeOptions::stop is ignored. Signing off ends after ten seconds even if it does not succeed.
  void leave(double patience_s = 600);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace evenkeel::flower
