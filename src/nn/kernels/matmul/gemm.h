/// \file  Multiplies float32 activations with a weight that stays in its stored type: float32, bfloat16, float16, or
/// int8 with one scale per row. The weight is converted to float32 block by block while it is packed. There is no
/// separate pass over the whole weight or the whole result.
///
/// Layers call matmul.h, which selects between these functions and those of libraries. docs/kernels.md explains
/// packing, tiling and the order of summation.
///
/// Order of summation. Every element of the result is a sum of its own, in an order that depends only on the number of
/// terms k. So the bits of a row do not depend on other rows, on the number of threads, or on the vector width.
///
/// - Arithmetic::kFp32: the terms are divided into blocks of 128. y (+)= block 0, then += block 1, and so on. A block
///   is ((0 + x_0 w_0) + x_1 w_1) + ..., one fused multiply-add per term. Processors without FMA round twice per term.
/// - Arithmetic::kBf16Pairs: x is rounded to bfloat16, so every product of two numbers is exact in float32. Blocks have
///   256 terms. A block is ((0 + x_1 w_1) + x_0 w_0) + x_3 w_3 + x_2 w_2 + ..., each addition rounded.
/// - Arithmetic::kBf16Tiles: x is rounded to bfloat16. For each 32 terms,
///   y (+)= (((0 + x_0 w_0) + x_2 w_2) + ... + x_30 w_30) + (((0 + x_1 w_1) + x_3 w_3) + ... + x_31 w_31).
///   In gemm_nt with int8 weights the sum of 256 terms begins at 0 and is multiplied by the row's scale before it is
///   added to y.
///
/// A processor without the bfloat16 instructions computes the same bits more slowly. The exception is numbers below
/// 1e-38, which the instructions treat as 0.
///
/// Threads: one if the product is small or if the caller is in a parallel region, else at::get_num_threads(). Threads
/// take *work tiles*, rectangular parts of the result, until none is left.
#pragma once

#include <cstdint>
#include <span>

#include "nn/kernels/matmul/matmul_operands.h"

namespace evenkeel::nn::kernels {

/// Computes y (+)= x W^T for each weight of the group; (+)= means = or +=, as Result::add says. x is [rows, in], W is
/// [out, in], y is [rows, out]. x is packed once for the whole group.
/// \throws Error{kInternal} if the arithmetic does not support the type of a weight
/// \throws Error{kShape} if the weights have different numbers of columns, or an epilogue has another shape
void gemm_nt(const Activations& x, std::span<const GroupedOperand> group, GemmScratch& scratch);
/// Computes the same for a single weight.
void gemm_nt(const Activations& x, const StoredMatrix& w, const Result& y, GemmScratch& scratch);

/// Computes y (+)= x W. x is [rows, out], W is [out, in], y is [rows, in]. This is the gradient of the input of a layer
/// with weight W. \throws as gemm_nt()
void gemm_nn(const Activations& x, const GroupedOperand& operand, GemmScratch& scratch);
/// Computes the same without epilogues.
void gemm_nn(const Activations& x, const StoredMatrix& w, const Result& y, GemmScratch& scratch);

/// Computes y (+)= x^T W. x is [rows, width], W is [rows, in], y is [width, in]. This is the gradient of a LoRA factor.
/// The arithmetic is always kFp32. \throws Error{kShape} if x and W have different numbers of rows
void gemm_tn(const Activations& x, int64_t width, const StoredMatrix& w, const Result& y, GemmScratch& scratch);

}  // namespace evenkeel::nn::kernels
