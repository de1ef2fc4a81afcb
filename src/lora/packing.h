/// \file  Divides a payload into few large arrays, for transports that send named arrays at a cost per array. There is
/// one array per layer and factor (A, B, core), with the experts of a layer stacked, and one array per dtype for small
/// tensors. A payload stores its tensors array by array (lora/payload.h), so the arrays are views of its bytes and
/// nothing is converted. The head of a payload describes everything but the numbers.
///
///   "adapter/model.layers.3/a"      every A of layer 3, site by site in name order
///   "base_delta/model.layers.3/b"   every B of the change of the base in layer 3
///   "extra/model.layers.3/pseudo_grad_a"   extras of two and more axes
///   "vectors/Float"                 all tensors of fewer than two axes and of that dtype
///
/// Names depend only on the sites and the method, not on the client or the round. Experts that were not trained are
/// sent too, as they were received.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::lora {

/// Returns a site's name up to its first number, e.g. "model.layers.3" of "model.layers.3.mlp.gate"; without a number,
/// the whole name.
std::string_view layer_of(std::string_view site);

/// Returns the name of the array that holds a tensor of a payload. \param name, axes, type  the tensor's name, number
/// of axes and dtype
std::string array_of(std::string_view name, int64_t axes, at::ScalarType type);

/// One array: a contiguous range of the payload's bytes.
struct PackedArray {
  std::string name;
  at::ScalarType type;
  int64_t begin = 0, bytes = 0;  ///< offset in the payload and length
  int64_t numel() const { return bytes / static_cast<int64_t>(at::elementSize(type)); }
};

/// The arrays of a payload.
struct Packing {
  std::string head;                 ///< the payload's first bytes: names, dtypes, shapes, scalings
  std::vector<PackedArray> arrays;  ///< in the order of the bytes; head and arrays together are the payload
  int64_t bytes = 0;                ///< length of the whole payload
  std::string layout;  ///< SHA-256 (hex) of names, dtypes and shapes; equal for payloads of the same structure
};

/// Divides a payload into arrays. The bytes are described, not copied.
/// \param beginning  the payload's first bytes, at least its head; the rest is ignored
/// \param source  the name of the source, for errors
/// \throws kCheckpoint when the bytes are not a payload, or it is not stored array by array.
Packing pack_payload(std::string_view beginning, const std::string& source);

}  // namespace evenkeel::lora
