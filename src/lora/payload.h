/// \file  What crosses the wire, and its bytes: one safetensors file per direction and client.
#pragma once

#include <cstdint>
#include <filesystem>

#include "lora/adapter.h"

namespace evenkeel {

/// Everything that ever crosses between server and client. Names in `extras` are `<layer or site>.<noun>`.
struct Payload {
  AdapterState adapters;
  TensorMap extras;
};

/// Precision of floating-point tensors on the wire; integer tensors and float64 scalars travel as they are.
enum class TransportDtype { kFloat32, kBFloat16 };

/// The payload as a receiver sees it: factors and extras rounded through `dtype`, back in float32.
Payload through_wire(const Payload& payload, TransportDtype dtype);

/// Writes `payload` atomically in transport precision. \return bytes written: what traffic reports count.
int64_t save_payload(const std::filesystem::path& file, const Payload& payload, TransportDtype dtype);

/// Maps a payload written by save_payload; tensors are views of the file (float32 ones) or widened copies (bfloat16
/// ones).
Payload load_payload(const std::filesystem::path& file);

/// The length save_payload would write.
int64_t payload_size(const Payload& payload, TransportDtype dtype);

}  // namespace evenkeel
