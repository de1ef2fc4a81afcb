#include "nn/engines/engine_of.h"

#include "nn/aten_engine/engine.h"
#include "nn/kernels_engine/engine.h"

namespace evenkeel::nn {

const Engine& engine_of(EngineKind kind) {
  static const KernelsEngine kernels;
  static const aten::AtenEngine aten;
  if (kind == EngineKind::kAten) return aten;
  return kernels;
}

}  // namespace evenkeel::nn
