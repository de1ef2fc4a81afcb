#include "nn/kernels/matmul/kernel_dispatcher.h"

#include "nn/kernels/matmul/isa/kernel_tables.h"

namespace evenkeel::nn::kernels {

const GemmKernels& gemm_kernels([[maybe_unused]] Isa isa, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::kBf16Tiles) return gemm_kernels_tiles(isa);
  const bool pairs = arithmetic == Arithmetic::kBf16Pairs;
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 && pairs && has_bfloat16_dots()) return gemm_kernels_avx512_pairs();
  if (isa == Isa::kAvx512 && !pairs) return gemm_kernels_avx512();
  if (isa != Isa::kBaseline) return pairs ? gemm_kernels_avx2_pairs() : gemm_kernels_avx2();
#endif
  return pairs ? gemm_kernels_portable_pairs() : gemm_kernels_portable();
}

}  // namespace evenkeel::nn::kernels
