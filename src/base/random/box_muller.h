/// \file  Normals from random words (Box and Muller 1958), in loops that a compiler turns into vector instructions: the
/// C library's logarithm, sine and cosine, one number at a time, take five times as long. Sums and products of doubles
/// in a fixed order, so every instruction set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evenkeel {

/// out[2 i] and out[2 i + 1] = scale * sqrt(-2 ln u) * (cos v, sin v), u = (words[2 i] + 1/2) / 2^32 and v = 2 pi
/// words[2 i + 1] / 2^32, within 2 units in the last place of a double before they are rounded to float. `pairs` is at
/// most kPairsAtOnce.
void box_muller(const uint32_t* words, size_t pairs, double scale, float* out);

inline constexpr size_t kPairsAtOnce = 256;

}  // namespace evenkeel
