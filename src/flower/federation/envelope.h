/// \file  Packs evenkeel's messages into Flower's and unpacks them. An envelope holds a message
/// (fed/exchange/message.h) or a message about the run itself, such as an offer. Its records are:
///
///   "evenkeel"  config record: version, run, kind, header (JSON); with a payload also its head and layout
///               (lora/packing.h); where they are set, the other texts of Envelope
///   "arrays"    array record: the payload, one array per layer and factor; bfloat16 is sent as uint16
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "fed/store/audit.h"
#include "flower/format/record_dict.h"

namespace evenkeel::flower {

/// The version of this format. Envelopes of another version are refused.
inline constexpr int64_t kEnvelopeVersion = 2;

/// A message of evenkeel between server and node.
struct Envelope {
  std::string run;         ///< name of the run (Offer::run)
  std::string kind;        ///< one of the kinds below
  std::string header;      ///< header of the message, as JSON
  at::Tensor payload_N{};  ///< [N] uint8: the payload; undefined if there is none
  /// SHA-256 of a payload that the receiver has from an earlier envelope and that is not sent again; empty: none. A
  /// receiver without it answers with kLackingEnvelope.
  std::string payload_digest{};
  std::string audit{};    ///< head of the sender's audit log (fed/store/audit.h); empty: it keeps none
  std::string outcome{};  ///< from a server: WorkOutcome of the receiver's last task as JSON; empty: nothing to say

  /// Returns the bytes of header and payload.
  int64_t bytes() const { return static_cast<int64_t>(header.size()) + (payload_N.defined() ? payload_N.numel() : 0); }
};

/// What became of a node's work, in the words of the server.
struct WorkOutcome {
  int64_t round = 0;  ///< as AuditEvent::round
  fed::AuditWork work = fed::AuditWork::kTrain;
  bool taken = false;    ///< true: the reply is part of the round
  std::string reason{};  ///< why it is not

  void visit(auto& field) {  // base/format/record.h
    field("round", round);
    field("work", work);
    field("taken", taken);
    field("reason", reason);
  }
};

/// Kinds that the server sends. kOfferEnvelope holds an Offer, kRefusalEnvelope a JoinRefusal, kUpdateEnvelope a
/// StateUpdate, kTaskEnvelope a Task. kAdapterEnvelope holds the run's final adapter. kShutdownEnvelope reports that
/// the run is over; the node answers with the same kind.
inline constexpr const char *kOfferEnvelope = "offer", *kUpdateEnvelope = "news", *kTaskEnvelope = "task",
                            *kAdapterEnvelope = "adapter", *kShutdownEnvelope = "farewell",
                            *kRefusalEnvelope = "refusal";
/// Kinds that a node sends. kAcceptanceEnvelope accepts an offer, kReplyEnvelope answers a task. kAcknowledgedEnvelope
/// confirms an update or the final adapter. kUnknownRunEnvelope answers any message about a run that the node has not
/// agreed to, kLackingEnvelope one whose payload the node does not have.
inline constexpr const char *kAcceptanceEnvelope = "acceptance", *kAcknowledgedEnvelope = "heard",
                            *kReplyEnvelope = "reply", *kUnknownRunEnvelope = "stranger", *kLackingEnvelope = "lacking";

/// Kinds of the phases of a masked round (flower/federation/mask_messages.h). The node answers with the same kind.
inline constexpr const char *kMaskKeysEnvelope = "secure_keys", *kMaskRosterEnvelope = "secure_roster",
                            *kMaskSharesEnvelope = "secure_shares", *kMaskSurvivorsEnvelope = "secure_survivors",
                            *kUnmaskEnvelope = "secure_unmask";
/// Returns true for a kind of a phase of a masked round.
bool is_mask_kind(std::string_view kind);

/// Turns envelopes into the content of Flower messages. Payloads with equal bytes are hashed and stored once: most
/// methods send the same payload to all clients of a round.
class EnvelopePacker {
 public:
  /// \param chunk_bytes  size of the chunks that arrays are sent in
  explicit EnvelopePacker(size_t chunk_bytes = size_t{16} << 20) : chunk_bytes_(chunk_bytes) {}
  /// Returns the records of `envelope`. They share the payload's memory and keep it alive.
  Content content(const Envelope& envelope);

 private:
  struct Packed;
  const Packed& packed(const at::Tensor& payload_N, const std::string& kind);

  size_t chunk_bytes_;
  std::vector<std::shared_ptr<const Packed>> known_;
};

/// Receives one envelope. It checks version, kind and size before any of the payload is stored.
class IncomingEnvelope {
 public:
  /// Called when all but the payload is known; `payload_bytes` bytes of payload follow. An Error that it throws refuses
  /// the envelope, and the sender gets the error's message.
  /// \return false to receive the envelope without its payload, which is then neither fetched nor stored
  using Consent = std::function<bool(const Envelope& envelope, int64_t payload_bytes)>;
  /// Returns a tensor [bytes] uint8 that receives the payload.
  using Allocate = std::function<at::Tensor(int64_t bytes)>;

  /// \param from      name of the sender, for error messages
  /// \param consent   see Consent
  /// \param allocate  empty: allocates an ordinary tensor
  IncomingEnvelope(std::string from, Consent consent, Allocate allocate = {});

  /// Returns the allocator to pass to the transport. It keeps the state alive, also after this object is gone.
  BufferAllocator allocator();
  /// Returns the envelope. Call it only when the whole message has arrived. \throws kData when the message had no
  /// envelope
  const Envelope& envelope() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace evenkeel::flower
