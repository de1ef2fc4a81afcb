/// \file  Innermost loops of a sum in fixed point (lora/fixed_point.h): over terms of bfloat16 or of float32, to a
/// float32 result.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel {

constexpr int64_t kRegisterStep = 32;  ///< values: a cache line of bfloat16, two of float32

/// A term's part of a block. \tparam Bits  uint16_t: values are bfloat16; uint32_t: float32
template <typename Bits>
struct Addend {
  const Bits* values;
  double factor;     ///< finite: the term's weight, times the scale
  Bits largest = 0;  ///< out: the magnitude's bits; what is not finite comes last
};

/// Whether this processor has the instructions (AVX-512 F, BW, VL and DQ).
bool has_sum_in_registers();

/// sum[j] = sum_i round(factor_i x_ij), to the nearest, ties to even, and each term's largest magnitude, in one pass:
/// sums of a few values stay in registers while all terms are added, and the values half a page on are asked
/// for. Products beyond 2^63 and what is not finite give some number: see `largest` before it is used.
/// \param sum  a multiple of kRegisterStep, as many as each addend has
void sum_in_registers(std::span<Addend<uint16_t>> addends, std::span<int64_t> sum);
void sum_in_registers(std::span<Addend<uint32_t>> addends, std::span<int64_t> sum);

/// Whether `count` values at `out` are whole cache lines.
bool is_whole_lines(const float* out, int64_t count);

/// out[j] = sum[j] factor, rounded in double and to float, in whole cache lines that are not read first and do not stay
/// in the caches; other threads see them once it returns.
void store_nontemporal(std::span<const int64_t> sum, double factor, float* out);

}  // namespace evenkeel
