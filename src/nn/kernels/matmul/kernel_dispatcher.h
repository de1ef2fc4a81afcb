/// \file  Selects the table of GEMM kernels for an instruction set and an arithmetic.
#pragma once

#include <cstdint>

#include "base/system/dispatch.h"

namespace evenkeel::nn::kernels {

struct GemmKernels;

/// The arithmetic of a GEMM. kBf16Pairs and kBf16Tiles round activations to bfloat16 and accept weights in bfloat16 and
/// int8 only. Sums are float32 in all three; gemm.h states their orders.
enum class Arithmetic : uint8_t {
  kFp32,       ///< one float32 term per step
  kBf16Pairs,  ///< two bfloat16 terms per step, as the AVX512-BF16 dot product takes them
  kBf16Tiles,  ///< 32 bfloat16 terms per instruction, as AMX takes them
};

/// Returns the kernels of `arithmetic` for processors with `isa`. Instructions that the processor lacks (AVX512-BF16,
/// AMX) are emulated by slower loops with the same results. Threads: any.
const GemmKernels& gemm_kernels(Isa isa, Arithmetic arithmetic);

}  // namespace evenkeel::nn::kernels
