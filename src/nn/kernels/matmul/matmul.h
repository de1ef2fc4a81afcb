/// \file  Computes matrix products with a frozen weight or a LoRA factor. There are three forms, named as in BLAS: NT
/// (x W^T), NN (x W) and TN (x^T W). The caller names a MatmulKernel; nn/compute/matmul_table.h explains the kernels. T
/// is float, or double in tests; float64 products always use the BLAS library.
///
/// Threads: as in gemm.h for the kernels of this program; the library decides for the others. Inside a parallel region
/// all run on one thread.
#pragma once

#include <cstdint>
#include <span>

#include "nn/compute/matmul_table.h"
#include "nn/kernels/matmul/matmul_operands.h"
#include "nn/kernels/primitives/scratch.h"

namespace evenkeel::nn::kernels {

/// Buffers of one matrix product. Keep them between calls, so that their memory is reused. Threads: one at a time.
template <typename T>
struct MatmulScratch {
  GemmScratch gemm;                     // kFp32Exact, kBf16Dot, kBf16Tile
  Scratch<T> upcast;                    // kUpcast: rows of the weight in T
  Scratch<uint16_t> bf16_in, bf16_out;  // kBf16Vendor: operand and result in bfloat16
};

/// NT: computes y (+)= x W^T for each weight of the group; (+)= means = or +=, as ResultOf::add says. x is [rows, in],
/// W is [out, in], y is [rows, out]. Each weight uses supported_kernel(w, kernel). Epilogues always use kFp32Exact.
/// \throws as gemm_nt() of gemm.h
template <typename T>
void matmul_nt(MatmulKernel kernel, const ActivationsOf<T>& x, std::span<const GroupedOperandOf<T>> group,
               MatmulScratch<T>& scratch);
/// NT for a single weight.
template <typename T>
void matmul_nt(MatmulKernel kernel, const ActivationsOf<T>& x, const StoredMatrix& w, const ResultOf<T>& y,
               MatmulScratch<T>& scratch) {
  const GroupedOperandOf<T> one{w, y};
  matmul_nt<T>(kernel, x, std::span(&one, 1), scratch);
}

/// NN: computes y (+)= x W. x is [rows, out], W is [out, in], y is [rows, in].
template <typename T>
void matmul_nn(MatmulKernel kernel, const ActivationsOf<T>& x, const GroupedOperandOf<T>& operand,
               MatmulScratch<T>& scratch);

/// TN: computes y (+)= x^T w. x is [rows, width], w is [rows, in], y is [width, in]. This is the gradient of a LoRA
/// factor. The kernel is always kFp32Exact.
template <typename T>
void matmul_tn(const ActivationsOf<T>& x, int64_t width, const StoredMatrix& w, const ResultOf<T>& y,
               MatmulScratch<T>& scratch);

/// Returns `requested` if it supports the weight `w`, else kFp32Exact. Kernels that round activations are used for
/// weights of at least 2^18 elements only, so that routers keep exact scores: kBf16Vendor for bfloat16, kBf16Dot and
/// kBf16Tile for bfloat16 and int8. kUpcast supports bfloat16 and float16.
MatmulKernel supported_kernel(const StoredMatrix& w, MatmulKernel requested);

}  // namespace evenkeel::nn::kernels
