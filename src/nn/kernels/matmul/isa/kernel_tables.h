/// \file  Declares the kernel tables of this folder, one function per source file and arithmetic. Only
/// kernel_dispatcher.cpp and amx.cpp call them. A new instruction set adds its functions here (docs/kernels.md).
#pragma once

#include "base/system/dispatch.h"

namespace evenkeel::nn::kernels {

struct GemmKernels;

#if defined(__x86_64__)
const GemmKernels& gemm_kernels_avx512();        ///< REQUIRES Isa::kAvx512
const GemmKernels& gemm_kernels_avx512_pairs();  ///< REQUIRES has_bfloat16_dots()
const GemmKernels& gemm_kernels_avx2();          ///< REQUIRES Isa::kAvx2 or kAvx512
const GemmKernels& gemm_kernels_avx2_pairs();    ///< REQUIRES Isa::kAvx2 or kAvx512
#endif
const GemmKernels& gemm_kernels_portable();
const GemmKernels& gemm_kernels_portable_pairs();
/// Returns AMX kernels if the processor has AMX, else loops with the same results. \param isa  instruction set of the
/// packing functions
const GemmKernels& gemm_kernels_tiles(Isa isa);

}  // namespace evenkeel::nn::kernels
