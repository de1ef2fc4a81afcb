/// \file  Encodes the messages between server and clients: one safetensors file per direction and client, in memory or
/// on disk.
///
/// Tensors are stored in the order of lora/packing.h. Names are "adapter/" or "base_delta/" followed by a name of
/// lora/adapter_tensors.h, and "extra/<name>". Scalings are metadata: "scaling" and "base_scaling" hold {"<site>": s}
/// as JSON. A stack whose experts differ in rank is sent without its zero rows, concatenated over the experts: a is
/// [sum of ranks, in], b is [sum of ranks, out].
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/format/config_table.h"
#include "base/format/safetensors.h"
#include "lora/adapter.h"

namespace evenkeel::lora {

/// The tensors of one message. Names in `extras` are `<layer or site>.<noun>`. A factor that is not sent (A in
/// FFA-LoRA, A and B in Fed-SB) is undefined.
struct Payload {
  AdapterState adapters{};
  TensorMap extras{};
  AdapterState base_delta{};  ///< from the server only: every receiver adds it to its base permanently
};

/// Precision of floating-point tensors with two or more axes in a message. Integers, vectors and scalars keep their
/// type. kAsTheyAre keeps the precision of every tensor, for payloads that were received and are stored.
enum class TransportDtype { kFloat32, kBFloat16, kAsTheyAre };
/// A config cannot choose kAsTheyAre.
constexpr auto names(TransportDtype) {
  return std::array{config::EnumName<TransportDtype>{"float32", TransportDtype::kFloat32},
                    config::EnumName<TransportDtype>{"bfloat16", TransportDtype::kBFloat16}};
}

/// A payload as bytes. The sender encodes it once.
struct EncodedPayload {
  at::Tensor bytes;                      ///< [N] uint8: a safetensors file
  std::map<std::string, int64_t> parts;  ///< bytes by content, see payload_parts()

  /// Returns the length in bytes, as traffic reports count it.
  int64_t size() const { return bytes.defined() ? bytes.numel() : 0; }
};

/// Converts floating-point tensors to the transport precision and returns the bytes. \param sites  sites of the model;
/// `parts` counts routers separately
EncodedPayload encode(const Payload& payload, TransportDtype dtype, const Sites& sites);

/// Passes the bytes of encode() to `sink` without joining them in memory. The other arguments are those of encode().
/// \return bytes by content, see payload_parts()
std::map<std::string, int64_t> pass_encoded(const Payload& payload, TransportDtype dtype, const Sites& sites,
                                            const ByteSink& sink);

/// A payload that is encoded later, by the thread that needs the bytes. Both functions keep the tensors alive, which
/// must not be written to.
struct DeferredPayload {
  std::function<EncodedPayload()> encode{};
  std::function<std::map<std::string, int64_t>(const ByteSink&)> pass{};  ///< as pass_encoded()
  int64_t bytes = 0;                                                      ///< memory of the tensors

  DeferredPayload() = default;
  explicit DeferredPayload(EncodedPayload payload);  ///< a payload that is encoded already
  /// Keeps the tensors of `payload` until encode() is called. The arguments are those of encode().
  DeferredPayload(Payload payload, TransportDtype dtype, const Sites& sites);
};

/// Reads a payload from bytes, [N] uint8. Factors are views of the bytes in their transport precision; received()
/// widens them. Stacks whose experts differ in rank are copied. Extras in 16-bit floats are widened to float32.
/// \param source  the name of the source, for errors
/// \throws kCheckpoint when the bytes are not a payload, also when they come from a peer
Payload decode(const at::Tensor& bytes, const std::string& source);
/// Maps a file and reads its payload as decode() does. \throws kIo when it cannot be opened; kCheckpoint as decode()
Payload load_payload(const std::filesystem::path& file);

/// Returns the factors rounded to `dtype`, as they are sent.
LoraFactors rounded_for_transport(const LoraFactors& factors, TransportDtype dtype);

/// Return `sent` with 16-bit floats widened to float32, in which a receiver computes. `base_delta` of a payload keeps
/// its dtype, so that receivers store two bytes per value.
LoraFactors received(const LoraFactors& sent);
AdapterState received(const AdapterState& sent);
Payload received(const Payload& sent);

/// Returns the length in bytes that encode() would give. Meta tensors suffice.
int64_t payload_size(const Payload& payload, TransportDtype dtype);

/// Returns the bytes of an encoded payload by content: "adapters" and "base_delta"; "router_adapters" and
/// "router_base_delta" for routers, which sizes in papers leave out; "ranks" of stacks whose experts differ in rank;
/// one entry per noun of the extras ("phi", "counts"); "header" for names, shapes and scalings. Meta tensors suffice.
std::map<std::string, int64_t> payload_parts(const Payload& payload, TransportDtype dtype, const Sites& sites);

}  // namespace evenkeel::lora
