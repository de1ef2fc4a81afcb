/// \file  Selects the matmul kernels of a benchmark by a flag.
#pragma once

#include <string>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "nn/dense/matmul_probe.h"

namespace evenkeel::bench {

/// The help text of a flag whose value products_by_name() reads.
inline constexpr auto kProductsHelp = "own, widen, native, dot or tile for all, or measured";

/// Returns a table that uses one kernel for all products. Its name is that of config files (nn/compute/matmul_table.h):
/// "own" (float32), "widen" (float32 BLAS), "native" (LibTorch's bfloat16), "dot" (bfloat16 dot products) or "tile"
/// (AMX). "measured" measures the products and returns the fastest kernel of each. \throws kConfig for another name.
inline nn::MatmulTable products_by_name(const std::string& name) {
  for (const auto& entry : nn::names(nn::MatmulKernel{}))
    if (entry.name == name) return entry.value;
  EK_CHECK(name == "measured", kConfig, "--products is ", shown(name), ", allowed: ", kProductsHelp);
  return nn::fastest_kernels(nn::measure_matmuls());
}

}  // namespace evenkeel::bench
