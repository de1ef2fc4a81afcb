/// \file  Implements the innermost loops of fixed-point sums (lora/fixed_point.h) over bfloat16 or float32 terms with a
/// float32 result.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel::lora {

constexpr int64_t kRegisterStep = 32;  ///< values per step: one cache line of bfloat16, two of float32

/// The part of a term in one block. \tparam Bits  uint16_t for bfloat16 values, uint32_t for float32
template <typename Bits>
struct Addend {
  const Bits* values;
  double factor;     ///< weight of the term times the scale; finite
  Bits largest = 0;  ///< output: bits of the largest magnitude; values that are not finite are larger than all others
};

/// Returns true when this processor has AVX-512 F, BW, VL and DQ.
bool has_sum_in_registers();

/// Computes sum[j] = sum_i round(factor_i x_ij), rounded to nearest, ties to even, and each term's largest magnitude in
/// one pass. A few sums stay in registers while all terms are added, and values half a page ahead are prefetched. Sums
/// are undefined if a product is beyond 2^63 or a value is not finite, so check `largest` before using them.
/// \param sum  a multiple of kRegisterStep values, as many as each addend has
void sum_in_registers(std::span<Addend<uint16_t>> addends, std::span<int64_t> sum);
void sum_in_registers(std::span<Addend<uint32_t>> addends, std::span<int64_t> sum);

/// Returns true when `count` values at `out` cover whole cache lines.
bool is_whole_lines(const float* out, int64_t count);

/// Writes out[j] = sum[j] * factor, computed in double and rounded to float, with non-temporal stores: the cache lines
/// are not read first and do not stay in the caches. Other threads see the values after it returns. REQUIRES
/// is_whole_lines(out, sum.size()).
void store_nontemporal(std::span<const int64_t> sum, double factor, float* out);

}  // namespace evenkeel::lora
