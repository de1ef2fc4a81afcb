/// \file  Names the tensors of adapters in payloads (lora/payload.h) and states on disk (fed/store/state_file.h):
/// "<site>/<factor>" for the defined factors a, b, core and ranks. Scalings are not tensors; each kind of file stores
/// them in its own way.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lora/adapter.h"

namespace evenkeel::lora {

using AddTensor = std::function<void(std::string name, const at::Tensor& tensor)>;

/// Calls add("<site>/<factor>", tensor) for the factors of one site. \param site  the site name with the file's prefix
void add_factors(std::string_view site, const LoraFactors& factors, const AddTensor& add);

/// Stores the tensor named "<site>/<factor>" in `adapters`. Returns false when the name does not end in a known factor.
bool insert_factor(AdapterState& adapters, std::string_view name, const at::Tensor& tensor);

}  // namespace evenkeel::lora
