/// \file  Defines what an instruction set provides for the loops in loops/. A source file in isa/ defines one `struct
/// Simd` with these members, checks it with static_assert, and includes loops/all.inc. docs/kernels.md shows how to add
/// one.
///
/// F is a vector of kLanes float32, I a vector of kLanes 32-bit words. A word holds one float32, two bfloat16 or four
/// int8. float16 has no word form: functions that load words of float16 convert them to float32 first. "First n" means
/// that lanes from n on are 0 on loading and are not written on storing. E is an element type: float, c10::BFloat16,
/// c10::Half or int8_t.
///
/// A term is one product of a sum, a[k] * b[k]. step() adds the next one or two terms of every lane (kTermsPerStep) to
/// the lane's sum. Its arguments are vectors of 32-bit lanes: one float32, or two bfloat16 as the bits of a word.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

#include "nn/kernels/matmul/gemm_kernels.h"

namespace evenkeel::nn::kernels {

/// The constants of an instruction set.
template <typename S>
concept SimdConstants = requires {
  requires S::kTermsPerStep == 1 || S::kTermsPerStep == 2;  // float32 terms, or pairs of bfloat16
  requires S::kLanes >= 4;                                  // float32 lanes of a vector
  requires S::kTileRows >= 1;             // rows of a tile: as many as the registers hold sums for, two vectors per row
  requires S::kUnrolledSteps >= 1;        // calls of step() in the body of a tile's loop
  requires S::kMaxStreamedRows >= 1;      // up to this many rows of x, the weight is read once and never packed
  requires S::kMaxUnpackedTileRows >= 1;  // largest number of rows of multiply_unpacked() (matmul/gemm_kernels.h)
  RowRange(S::kUnpackedBf16Rows);         // numbers of rows for which a bfloat16 weight is read in place; may be empty
};

/// The required members of `Simd`. Optional members, which the loops detect and use:
/// - `F step_low_half(F a, F b, F sum)`: step() for the lower half of the lanes; the upper half is unspecified.
/// - `struct Half` with F, kLanes, zero, broadcast, load, store, add and step: vectors of half the length.
/// - Functions on quarters of a vector, of four lanes each, for kLanes = 16:
///   `F broadcast_quarter(const float* p)`: p[0..3] in the first quarter and again in the second.
///   `F join_quarters(F a, F b)`: the first quarter of a, then the second quarter of b.
///   `void store_quarters(float* first, float* second, F v, bool add)`: stores, or adds, the first quarter of v
///   at `first` and the second one at `second`.
/// - `void load_interleaved(const E* rows, int64_t stride, F (&columns)[2])`: reads 2 kLanes elements of each of two
///   rows, `stride` elements apart, and makes arguments of step(): lane j of columns[i] holds element i kLanes + j of
///   the first row and, as the later term, that of the second.
template <typename S>
concept SimdTraits = SimdConstants<S> &&
    requires(typename S::F f, typename S::I i, typename S::I (&words)[S::kLanes], int64_t n, const float* numbers,
             float* out, const c10::BFloat16* bf16, const c10::Half* fp16, const int8_t* int8) {
  f = S::zero();                  // all lanes 0
  f = S::broadcast(1.0f);         // one number in all lanes
  f = S::load(numbers);           // kLanes numbers; no alignment required
  f = S::load_first(numbers, n);  // the first n of them
  S::store(out, f);               // kLanes numbers; no alignment required
  S::store_first(out, f, n);      // the first n of them
  f = S::fma(f, f, f);            // a * b + c, rounded once if the processor can
  f = S::add(f, f);               // a + b
  f = S::mul(f, f);               // a * b
  f = S::step(f, f, f);           // (a, b, sum): sum + the kTermsPerStep products of a and b in each lane
  f = S::as_floats(i);            // the same bits
  i = S::as_words(f);             // the same bits
  i = S::zero_words();            // all bits 0
  i = S::load_words(bf16, n);     // the words of the first n elements of type E
  f = S::template element<c10::BFloat16, 1>(i);  // element J of each word, as float32; J = 0 is in the low bits
  f = S::template element<int8_t, 3>(i);
  f = S::load_widened(bf16);  // kLanes elements of type E, as float32
  f = S::load_widened(fp16);
  f = S::load_widened(int8);
  f = S::load_first_widened(bf16, n);  // the first n of them
  f = S::load_first_widened(fp16, n);
  f = S::load_first_widened(int8, n);
  S::load_transposed(bf16, n, words);  // words[j] = word j of each of kLanes rows, n elements apart
  S::transpose(words);                 // exchanges rows and columns of kLanes x kLanes words
};

/// The additional members of an instruction set with two terms per step.
template <typename S>
concept PairSimdTraits = SimdTraits<S> && S::kTermsPerStep == 2 && requires(typename S::F f, typename S::I i) {
  f = S::make_pair(f, f);    // (a, b): an argument of step() whose earlier terms are a and later ones b, float32
                             // vectors that bfloat16 represents exactly
  i = S::narrow_pair(f, f);  // two consecutive vectors rounded to bfloat16, as words
};

}  // namespace evenkeel::nn::kernels
