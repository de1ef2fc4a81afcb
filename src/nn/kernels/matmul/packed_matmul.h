/// \file  Products of float32 activations with a weight that stays in the type it is stored in: float32, bfloat16,
/// float16, or int8 with a scale per row. A block of the weight is widened to float32 while it is packed for the
/// registers; no pass over the whole weight or the whole result is made beside the product.
///
/// Every element is summed by itself, in one order:  y (+)= sum over blocks of 128 terms, in turn, of
/// (((0 + x_0 w_0) + x_1 w_1) + ...), each step one fused multiply-add. So the bits of a row depend neither on the rows
/// beside it, nor on threads, nor on the width of the vectors (AVX2, AVX-512); processors without FMA round twice.
///
/// In pairs and in tiles, activations are rounded to bfloat16; products of two of those are exact in float32. In pairs,
/// the processor's dot products take two terms of x and w at a time: blocks of 256 terms, (0 + x_1 w_1) + x_0 w_0 and
/// so on, each addition rounded. In tiles (AMX), 32 terms of 16 rows and 16 columns at a time:
/// y (+)= (((0 + x_0 w_0) + x_2 w_2) + ... + x_30 w_30) + (((0 + x_1 w_1) + x_3 w_3) + ... + x_31 w_31), again for the
/// next 32, and so on; where rows of y have scales (int8), the sum of 256 terms, from 0, times the scale. Where a
/// processor lacks the instructions, the same bits, at a fraction of the speed (but for numbers below 1e-38, which they
/// take for 0).
///
/// Within a parallel region, or where there is little to do, one thread works; otherwise at::get_num_threads() do, each
/// taking small shares of the result as it gets free.
#pragma once

#include <cstdint>
#include <span>

#include "nn/kernels/matmul/matmul_operands.h"
#include "nn/kernels/primitives/scratch.h"

namespace evenkeel::kernels {

/// y [rows, out] (+)= x W^T for each weight, x [rows, in]; x is packed once.
/// \throws Error{kInternal} for a weight of another type, or of one that the arithmetic cannot take; kShape where the
///         widths of the weights differ.
void times_transposed(const Activations& x, std::span<const SideBySide> products, PackedScratch& scratch);
void times_transposed(const Activations& x, const StoredMatrix& w, const Result& y, PackedScratch& scratch);

/// y [rows, in] (+)= x W, x [rows, out]: the gradient of what W was applied to.
void times(const Activations& x, const SideBySide& product, PackedScratch& scratch);
void times(const Activations& x, const StoredMatrix& w, const Result& y, PackedScratch& scratch);

/// y [width, in] (+)= x^T W, x [rows, width] and as many rows in W: the gradient of a factor. Always in single terms.
void transposed_times(const Activations& x, int64_t width, const StoredMatrix& w, const Result& y,
                      PackedScratch& scratch);

}  // namespace evenkeel::kernels
