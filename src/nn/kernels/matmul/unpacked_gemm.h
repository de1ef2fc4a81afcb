/// \file  Implements GEMM with one operand read in place instead of being packed. gemm_nt() and gemm_nn() of gemm.h
/// call the functions of this file first, which handle two cases in which packing costs more than it saves:
/// - Narrow weights (LoRA factors): the activations are read in place and the weight is packed.
/// - Few rows of activations (an expert's part of a small batch), or kBf16Tiles with any number of rows: the weight is
///   read in place and the activations are packed.
/// The order of summation is that of gemm.h, so the bits are the same as with packing.
#pragma once

#include <cstdint>
#include <span>

#include "nn/kernels/matmul/matmul_operands.h"

namespace evenkeel::nn::kernels {

/// Rows of activations that are packed at once. With 2048 terms in bfloat16 they take 1 MiB, which stays in the cache
/// while the weights are read.
constexpr int64_t kBandRows = 256;

/// Computes gemm_nt() of gemm.h if one of the two cases applies to the whole group. \return true if the product was
/// computed; false: nothing was written
bool gemm_nt_unpacked(const Activations& x, std::span<const GroupedOperand> group, GemmScratch& scratch);
/// Computes gemm_nn() of gemm.h if the weight is narrow. \return as gemm_nt_unpacked()
bool gemm_nn_unpacked(const Activations& x, const GroupedOperand& operand, GemmScratch& scratch);

}  // namespace evenkeel::nn::kernels
