/// \file  Adapters as named tensors, alike in payloads (lora/payload.h) and in states on disk (fed/store/state_file.h):
/// "<site>/<factor>" with the factors a, b, core and ranks, those that are defined. Scalings are no tensors: each kind
/// of file keeps them in its own way.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lora/adapter.h"

namespace evenkeel {

using AddTensor = std::function<void(std::string name, const at::Tensor& tensor)>;

/// Calls add("<site>/<factor>", tensor) for the factors of one site. \param site  with what stands before it in the
/// file
void add_factors(std::string_view site, const LoraFactors& factors, const AddTensor& add);

/// Puts the tensor named "<site>/<factor>" in its place. \return whether there is one
bool place_factor(AdapterState& adapters, std::string_view name, const at::Tensor& tensor);

}  // namespace evenkeel
