/// \file  What crosses Flower's wire between the two halves of a run: a message of ours (fed/exchange/message.h) or a
/// word about the run itself, as a record of configuration and a record of arrays.
///
///   "evenkeel"  version, run, kind, header (JSON), and where a payload travels its head and layout (lora/packing.h)
///   "arrays"    the payload, one array per layer and factor; bfloat16 as uint16
///   "metrics"   of replies: what Flower's own tools look at
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "flower/format/record_dict.h"

namespace evenkeel {

/// The version of what is agreed on here; another one is refused.
inline constexpr int64_t kLetterVersion = 1;

struct Envelope {
  std::string run;         ///< which run it is about (Offer::run)
  std::string kind;        ///< of the kinds below
  std::string header;      ///< JSON
  at::Tensor payload_N{};  ///< [N] uint8, undefined where nothing travels
};

/// Kinds from the server. An adapter envelope brings the run's final adapter. A farewell says that the run is over, and
/// is answered by another.
inline constexpr const char *kOfferEnvelope = "offer", *kUpdateEnvelope = "news", *kTaskEnvelope = "task",
                            *kAdapterEnvelope = "adapter", *kShutdownEnvelope = "farewell";
/// Kinds from a node. A heard envelope answers news and the adapter. A stranger's envelope answers whatever is about a
/// run that the node has not agreed to.
inline constexpr const char *kAcceptanceEnvelope = "acceptance", *kAcknowledgedEnvelope = "heard",
                            *kReplyEnvelope = "reply", *kUnknownRunEnvelope = "stranger";

/// Makes records of envelopes. Payloads of equal bytes, as most methods send them to all clients of a round, are hashed
/// and kept once.
class EnvelopePacker {
 public:
  explicit EnvelopePacker(size_t chunk_bytes = size_t{16} << 20) : chunk_bytes_(chunk_bytes) {}
  /// The records borrow the payload and keep it alive.
  wire::Content content(const Envelope& envelope);

 private:
  struct Packed;
  const Packed& packed(const at::Tensor& payload_N, const std::string& kind);

  size_t chunk_bytes_;
  std::vector<std::shared_ptr<const Packed>> known_;
};

/// A envelope under way. Bounds what may arrive before any of it is in memory.
class IncomingEnvelope {
 public:
  /// Looked at when everything but the payload is known. \throws Error: the envelope is refused, and the sender told
  using Consent = std::function<void(const Envelope& envelope, int64_t payload_bytes)>;
  /// Makes [bytes] uint8 for a payload.
  using Allocate = std::function<at::Tensor(int64_t bytes)>;

  /// \param from  for messages
  IncomingEnvelope(std::string from, Consent consent, Allocate allocate = {});

  /// To be handed to the wire; it keeps what it needs alive.
  wire::BufferAllocator allocator();
  /// Once all of it is there. \throws kData when nothing arrived
  const Envelope& envelope() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace evenkeel
