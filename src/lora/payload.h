/// \file  What crosses the wire, and its bytes: one safetensors file per direction and client, in memory or on disk.
///
/// Tensors lie as lora/packing.h hands them to transports. Names: "adapter/" and "base_delta/", each before those of
/// lora/adapter_tensors.h; "extra/<name>". Scalings are metadata: "scaling" and "base_scaling" hold {"<site>": s} as
/// JSON. A stack whose experts differ in rank travels as the rows that carry something, of all experts on top of each
/// other: a [sum of ranks, in], b [sum of ranks, out].
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "lora/adapter.h"

namespace evenkeel {

/// Everything that ever crosses between server and client. Names in `extras` are `<layer or site>.<noun>`. A factor
/// that does not travel (FFA-LoRA's A, Fed-SB's A and B) is undefined.
struct Payload {
  AdapterState adapters{};
  TensorMap extras{};
  AdapterState base_delta{};  ///< down only: what every receiver, participant or not, adds to its base for good
};

/// Precision of floating-point tensors of two and more axes on the wire; integers, vectors and scalars travel as they
/// are. kAsTheyAre: what somebody keeps in the precision it was received in.
enum class TransportDtype { kFloat32, kBFloat16, kAsTheyAre };

/// A payload as it crosses: encoded once, by who sends it.
struct EncodedPayload {
  at::Tensor bytes;                      ///< [N] uint8: a safetensors file
  std::map<std::string, int64_t> parts;  ///< N by content, see payload_parts()

  int64_t size() const { return bytes.defined() ? bytes.numel() : 0; }  ///< what traffic reports count
};

/// Floating-point tensors in transport precision. \param sites  which of the sites are routers, for the parts
EncodedPayload encode(const Payload& payload, TransportDtype dtype, const Sites& sites);

/// A payload that whoever wants its bytes makes, in whichever thread that is.
struct DeferredPayload {
  std::function<EncodedPayload()> encode{};  ///< keeps the tensors alive; nobody may write to them
  int64_t bytes = 0;                         ///< that they take in memory

  DeferredPayload() = default;
  DeferredPayload(EncodedPayload payload);  // NOLINT(google-explicit-constructor): made already
  DeferredPayload(Payload payload, TransportDtype dtype, const Sites& sites);
};

/// Factors are views of the bytes, in the precision they arrived in: received() widens one site when its turn comes.
/// Extras are widened. \param place  whose bytes they are, for errors. \throws kCheckpoint when they are no payload.
Payload decode(const at::Tensor& bytes, const std::string& place);
/// The same of a file, which is mapped.
Payload load_payload(const std::filesystem::path& file);

/// Factors in the precision that they have on the wire.
LoraFactors on_the_wire(const LoraFactors& factors, TransportDtype dtype);

/// What a receiver sees: bfloat16 widened to float32, float32 as it is. A change of the base stays as it was sent: who
/// keeps it for good keeps two bytes a value.
LoraFactors received(const LoraFactors& sent);
AdapterState received(const AdapterState& sent);
Payload received(const Payload& sent);

/// The length that encode() would make, of tensors that need no storage (device meta).
int64_t payload_size(const Payload& payload, TransportDtype dtype);

/// The same by content: "adapters" and "base_delta", those of routers (as `sites` says) apart as "router_adapters" and
/// "router_base_delta" (published sizes leave them out), "ranks" of stacks whose experts differ, the nouns of extras
/// ("phi", "counts"), and "header": names, shapes and scalings.
std::map<std::string, int64_t> payload_parts(const Payload& payload, TransportDtype dtype, const Sites& sites);

}  // namespace evenkeel
