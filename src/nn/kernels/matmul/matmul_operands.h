/// \file  Defines operands, results and scratch memory of the matrix products in this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "base/system/dispatch.h"
#include "nn/kernels/matmul/kernel_dispatcher.h"
#include "nn/kernels/matmul/stored_matrix.h"
#include "nn/kernels/primitives/scratch.h"

namespace evenkeel::nn::kernels {

/// The left operand of a product: `rows` rows that begin `stride` elements apart.
template <typename T>
struct ActivationsOf {
  const T* data = nullptr;
  int64_t rows = 0, stride = 0;
  T scale = 1;                                ///< multiplies every element, for example LoRA's alpha / r
  Arithmetic arithmetic = Arithmetic::kFp32;  ///< how terms are multiplied and added (docs/kernels.md)
};
using Activations = ActivationsOf<float>;

/// The result of a product: rows that begin `stride` elements apart. It must not overlap the operands.
template <typename T>
struct ResultOf {
  T* data = nullptr;
  int64_t stride = 0;
  bool add = false;  ///< true: the product is added to the content; false: the content is overwritten
};
using Result = ResultOf<float>;

/// Buffers of the GEMMs in gemm.h. Keep one between products, so that its memory is reused. It holds the packed
/// activations (at most 16 MiB) and those of the epilogues. For each thread it also holds one packed panel of the
/// weight (16 KiB) and the partial sums of a work tile (at most 512 KiB). With kBf16Tiles it holds all panels of a work
/// tile and the partial sums, at most 1 MiB each. Threads: one product at a time.
struct GemmScratch {
  Scratch<float> x, w, epilogues;
  Isa instructions = isa();  ///< the instruction set to use; tests set a lower one than the processor has
};

/// A low-rank product that is added to the main product while the main product's partial sums are in the cache, for
/// example scaling (x A^T) B^T added to x W^T. A second product that is added to the first would give the same bits.
/// The arithmetic is always kFp32.
template <typename T>
struct LowRankEpilogueOf {
  ActivationsOf<T> x;  ///< as many rows as the main product
  StoredMatrix w;      ///< as many columns in the result as the main product; not int8
};
using LowRankEpilogue = LowRankEpilogueOf<float>;

/// One weight of a grouped product. A group is several products with the same activations.
template <typename T>
struct GroupedOperandOf {
  StoredMatrix w;
  ResultOf<T> y;
  std::vector<LowRankEpilogueOf<T>> epilogues{};  ///< added in this order
};
using GroupedOperand = GroupedOperandOf<float>;

}  // namespace evenkeel::nn::kernels
