/// \file  The kernels of a benchmark, by a flag.
#pragma once

#include <string>

#include "nn/dense/matmul_probe.h"

namespace evenkeel::bench {

/// "own", "dot", "tile", "native" or "widen" for all products, or "measured" here and now.
inline ProductTable products_by_name(const std::string& name) {
  for (const auto& entry : names(ProductKernel{}))
    if (entry.name == name) return entry.value;
  return fastest_products(measure_products());
}

}  // namespace evenkeel::bench
