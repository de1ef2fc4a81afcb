/// \file  Selects the engine of a forward pass, and the engine's settings. A Compute is part of ForwardOptions and is
/// passed down with every forward call. There is no global setting: two models of one process may use different
/// engines.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

#include "base/format/config_table.h"
#include "nn/compute/matmul_table.h"

namespace evenkeel::nn {

/// Names an implementation of the layers (nn/engine/engine.h).
enum class EngineKind : uint8_t {
  kKernels,  ///< the kernels of this program (nn/kernels_engine); CPU only
  kAten,     ///< LibTorch's operators (nn/aten_engine); any device
};
/// Returns the names of the engines in config files.
constexpr auto names(EngineKind) {
  return std::array{config::EnumName<EngineKind>{"kernels", EngineKind::kKernels},
                    config::EnumName<EngineKind>{"aten", EngineKind::kAten}};
}

/// The engine of a forward call and its settings.
struct Compute {
  EngineKind engine = EngineKind::kKernels;
  /// Engine kKernels: selects the kernel of each matrix product with a frozen weight.
  MatmulTable products{};
  /// Engine kAten: the type of the matrix products inside blocks, kBFloat16 or kFloat. kFloat means float32, or float64
  /// where the activations are. The residual stream, the router and sums of losses are float32 in both cases.
  c10::ScalarType inner = c10::ScalarType::Float;
  bool operator==(const Compute&) const = default;
};

}  // namespace evenkeel::nn
