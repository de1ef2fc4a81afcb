/// \file  Returns the engine of a kind (nn/engine/engine.h).
#pragma once

#include "nn/engine/engine.h"

namespace evenkeel::nn {

/// Returns the engine of a kind. It lives as long as the program.
const Engine& engine_of(EngineKind kind);
/// Returns the engine that `compute` selects.
inline const Engine& engine_of(const Compute& compute) { return engine_of(compute.engine); }

}  // namespace evenkeel::nn
