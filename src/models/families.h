/// \file  What a family file offers to the registry. A new family is one file and one row.
#pragma once

#include <memory>

#include "models/causal_lm.h"
#include "models/checkpoint.h"

namespace evenkeel {

/// Builds a model of `config`'s shape from `source`.
using MakeModel = std::unique_ptr<CausalLm> (*)(const ModelConfig& config, TensorSource& source);

std::unique_ptr<CausalLm> make_olmo(const ModelConfig& config, TensorSource& source);
std::unique_ptr<CausalLm> make_olmoe(const ModelConfig& config, TensorSource& source);

}  // namespace evenkeel
