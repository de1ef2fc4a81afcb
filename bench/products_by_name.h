/// \file  Selects the matmul kernels of a benchmark by a flag.
#pragma once

#include <string>

#include "nn/dense/matmul_probe.h"

namespace evenkeel::bench {

/// Returns the table for "own", "dot", "tile", "native" or "widen" for all products, or measures it for "measured".
inline nn::MatmulTable products_by_name(const std::string& name) {
  for (const auto& entry : nn::names(nn::MatmulKernel{}))
    if (entry.name == name) return entry.value;
  return nn::fastest_kernels(nn::measure_matmuls());
}

}  // namespace evenkeel::bench
