/// \file  What crosses the wire, and its bytes: one safetensors file per direction and client.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "lora/adapter.h"

namespace evenkeel {

/// Everything that ever crosses between server and client. Names in `extras` are `<layer or site>.<noun>`. A factor that
/// does not travel (FFA-LoRA's A, Fed-SB's A and B) is undefined.
struct Payload {
  AdapterState adapters{};
  TensorMap extras{};
  AdapterState base_delta{};  ///< down only: what every receiver, participant or not, adds to its base for good
};

/// Precision of floating-point tensors of two and more axes on the wire; integers, vectors and scalars travel as they are.
enum class TransportDtype { kFloat32, kBFloat16 };

/// The payload as a receiver sees it: factors and extras rounded through `dtype`, back in float32.
Payload through_wire(const Payload& payload, TransportDtype dtype);

/// Writes `payload` atomically in transport precision. \return bytes written: what traffic reports count.
int64_t save_payload(const std::filesystem::path& file, const Payload& payload, TransportDtype dtype);

/// The state as a receiver sees it: as through_wire(Payload).
AdapterState through_wire(const AdapterState& adapters, TransportDtype dtype);

/// Maps a payload written by save_payload. Factors are views of the file, in the precision they arrived in: received()
/// widens one site when its turn comes. Extras are widened.
Payload load_payload(const std::filesystem::path& file);

/// Factors as a receiver sees them: bfloat16 widened to float32, float32 as it is.
LoraFactors received(const LoraFactors& sent);

/// The length save_payload would write.
int64_t payload_size(const Payload& payload, TransportDtype dtype);

/// The same by content: "adapters" and "base_delta", those of routers apart as "router_adapters" and "router_base_delta"
/// (published sizes leave them out), "ranks" of stacks whose experts differ, the nouns of extras ("phi", "counts"), and
/// "header": names, shapes and scalings.
std::map<std::string, int64_t> payload_parts(const Payload& payload, TransportDtype dtype);

}  // namespace evenkeel
