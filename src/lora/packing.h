/// \file  A payload as few large arrays, for transports that carry named arrays and charge for each of them: one per
/// layer and factor (A, B, core), the experts of a layer stacked, and one per dtype for all that is small. A payload
/// lies array by array, so these are views of its own bytes (lora/payload.h): nothing is converted, and whoever has the
/// head of the payload knows all of it but the numbers.
///
///   "adapter/model.layers.3/a"      every A of layer 3, site by site in name order
///   "base_delta/model.layers.3/b"   likewise
///   "extra/model.layers.3/pseudo_grad_a"   extras of two and more axes
///   "vectors/Float"                 all tensors of fewer than two axes and of that dtype
///
/// Names depend on the sites and the method alone, never on what a client or a round made of them: an expert that
/// nobody touched is there, as it was received.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

/// A site's name up to its first number, "model.layers.3" of "model.layers.3.mlp.gate"; the whole name without one.
std::string_view layer_of(std::string_view site);

/// The array that a tensor of a payload belongs to. \param axes  of the tensor
std::string array_of(std::string_view name, int64_t axes, at::ScalarType type);

/// One array: a run of the payload's bytes.
struct PackedArray {
  std::string name;
  at::ScalarType type;
  int64_t begin = 0, bytes = 0;
  int64_t numel() const { return bytes / static_cast<int64_t>(at::elementSize(type)); }
};

struct Packing {
  std::string head;                 ///< the payload's first bytes: names, dtypes, shapes, scalings
  std::vector<PackedArray> arrays;  ///< as they lie; head and arrays together are the payload
  int64_t bytes = 0;                ///< of the whole payload
  std::string layout;               ///< SHA-256, hex, of names, dtypes and shapes: equal where payloads fit each other
};

/// How a payload is packed. \param beginning  at least the head of its bytes; what follows is not looked at
/// \param place  whose bytes they are, for errors. \throws kCheckpoint when they are no payload's, or it
/// does not lie array by array
Packing pack_payload(std::string_view beginning, const std::string& place);

}  // namespace evenkeel
