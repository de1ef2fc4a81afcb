#include "nn/compute/engine_choice.h"

#include "base/plain/error.h"
#include "base/system/device.h"

namespace evenkeel::nn {

void check_engine(EngineChoice engine, std::string_view device, std::string_view place) {
  EK_CHECK(!names_gpu(device) || engine != EngineChoice::kKernels, kConfig,
           "model.engine is \"kernels\", which compute on processors, allowed: aten, where model.device is \"", device,
           '"', place);
}

EngineKind engine_on(EngineChoice engine, std::string_view device) {
  const bool operators = engine == EngineChoice::kAten || (engine == EngineChoice::kAuto && names_gpu(device));
  return operators ? EngineKind::kAten : EngineKind::kKernels;
}

}  // namespace evenkeel::nn
