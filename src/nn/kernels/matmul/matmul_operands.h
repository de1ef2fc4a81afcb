/// \file  Operands and results of the matrix products in this folder, and the memory that they work in.
#pragma once

#include <cstdint>
#include <vector>

#include "base/system/dispatch.h"
#include "nn/kernels/matmul/stored_matrix.h"
#include "nn/kernels/primitives/scratch.h"

namespace evenkeel::kernels {

/// How a sum takes its terms. Those in bfloat16 are for weights in bfloat16 and int8.
enum class Arithmetic : uint8_t { kSingles, kPairs, kTiles };

/// Rows of numbers, `stride` numbers apart.
template <typename T>
struct ActivationsOf {
  const T* data = nullptr;
  int64_t rows = 0, stride = 0;
  T scale = 1;  ///< times every number: LoRA's alpha / r
  Arithmetic arithmetic = Arithmetic::kSingles;
};
using Activations = ActivationsOf<float>;

/// Where a product goes, rows `stride` numbers apart. It may not overlap what it is made of.
template <typename T>
struct ResultOf {
  T* data = nullptr;
  int64_t stride = 0;
  bool add = false;  ///< to what is there, instead of writing over it
};
using Result = ResultOf<float>;

/// What products need beside their operands: the packed activations (at most 16 MiB, and those of addends) and, for
/// each thread, a panel of the weight (16 KiB) and the sums of a share of the result (at most 512 KiB); in tiles, all
/// panels of a share and its sums (at most 1 MiB each). Keep it between products.
struct PackedScratch {
  Scratch<float> x, w, addends;
  Isa instructions = isa();  ///< tests set a lower one than the processor has
};

/// What is added to a product while its sums are in the cache, to the bits of a second product that adds to the first:
/// x W^T beside x W^T, x W beside x W. Always in single terms.
template <typename T>
struct AddendOf {
  ActivationsOf<T> x;  ///< as many rows as the product's
  StoredMatrix w;      ///< with as many columns of the result; not int8
};
using Addend = AddendOf<float>;

/// One of several products with the same activations.
template <typename T>
struct SideBySideOf {
  StoredMatrix w;
  ResultOf<T> y;
  std::vector<AddendOf<T>> addends{};  ///< in turn
};
using SideBySide = SideBySideOf<float>;

}  // namespace evenkeel::kernels
