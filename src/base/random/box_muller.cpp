#include "base/random/box_muller.h"

#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/system/dispatch.h"

namespace evenkeel {
namespace {

/// Returns 1 / n or 1 / n! for every second n from `first` on, with alternating signs if requested.
template <size_t kTerms>
constexpr std::array<double, kTerms> series(int first, bool factorial, bool alternating) {
  std::array<double, kTerms> terms{};
  for (size_t k = 0; k < kTerms; ++k) {
    const int n = first + 2 * static_cast<int>(k);
    double below = n;
    for (int i = 2; factorial && i < n; ++i) below *= i;
    terms[k] = (alternating && k % 2 ? -1.0 : 1.0) / below;
  }
  return terms;
}

/// Computes terms[0] + terms[1] x + terms[2] x^2 ...
template <size_t kTerms>
EK_INLINE double polynomial(const std::array<double, kTerms>& terms, double x) {
  double sum = terms[kTerms - 1];
  for (size_t k = kTerms - 1; k > 0; --k) sum = sum * x + terms[k - 1];
  return sum;
}

/// Computes ln x of a normal number x > 0 from x = 2^e m with m in [sqrt(1/2), sqrt(2)): ln m = 2 artanh((m - 1) / (m +
/// 1)).
EK_INLINE double logarithm(double x) {
  constexpr auto kTerms = series<10>(3, false, false);
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  constexpr uint64_t kTwoTo52 = std::bit_cast<uint64_t>(0x1p52);
  // After this shift, the exponent field tells whether the mantissa is below or above sqrt(1/2).
  constexpr uint64_t kShift = std::bit_cast<uint64_t>(1.0) - std::bit_cast<uint64_t>(std::numbers::sqrt2 / 2);
  const uint64_t moved = std::bit_cast<uint64_t>(x) + kShift;
  const double e = std::bit_cast<double>((moved >> 52) | kTwoTo52) - (0x1p52 + 1023);
  const double m = std::bit_cast<double>((moved & kMantissa) + std::bit_cast<uint64_t>(std::numbers::sqrt2 / 2));
  const double s = (m - 1) / (m + 1);
  const double squared = s * s;
  return e * std::numbers::ln2 + (2 * s + 2 * s * squared * polynomial(kTerms, squared));
}

struct Point {
  double x, y;
};

/// Computes (cos v, sin v) for v in [0, 2 pi], by reduction to the nearest multiple of pi / 2.
EK_INLINE Point cos_sin(double v) {
  constexpr auto kCosine = series<9>(2, true, true);
  constexpr auto kSine = series<8>(3, true, true);
  constexpr double kRounder = 0x1.8p52;        // adding it rounds to an integer
  constexpr double kHalfPi = 0x1.921fb544p+0;  // 33 bits of pi / 2, so that small multiples are exact
  constexpr double kHalfPiRest = 0x1.0b4611a626331p-34;
  const double shifted = v * (2 / std::numbers::pi) + kRounder;
  const double turns = shifted - kRounder;
  const uint64_t quarter = std::bit_cast<uint64_t>(shifted);
  const double r = (v - turns * kHalfPi) - turns * kHalfPiRest;
  const double squared = r * r;
  const double cosine = 1 - squared * polynomial(kCosine, squared);
  const double sine = r - r * squared * polynomial(kSine, squared);
  // Selects without branches: quarters 1 and 3 swap cosine and sine, 1 and 2 negate x, 2 and 3 negate y.
  const uint64_t swap = 0 - (quarter & 1);
  const auto c = std::bit_cast<uint64_t>(cosine), s = std::bit_cast<uint64_t>(sine);
  const uint64_t x = (c & ~swap) | (s & swap), y = (s & ~swap) | (c & swap);
  return {std::bit_cast<double>(x ^ (((quarter ^ (quarter >> 1)) & 1) << 63)),
          std::bit_cast<double>(y ^ (((quarter >> 1) & 1) << 63))};
}

/// Converts to double through a signed 32-bit integer, which vector units support.
EK_INLINE double to_double(uint32_t word) {
  return static_cast<double>(static_cast<int32_t>(word ^ 0x80000000u)) + 0x1p31;
}

struct BoxMuller {
  static EK_INLINE void run(const uint32_t* words, size_t pairs, double scale, float* out) {
    std::array<double, kPairsAtOnce> u, v;
    for (size_t i = 0; i < pairs; ++i) {
      u[i] = (to_double(words[2 * i]) + 0.5) * 0x1p-32;
      v[i] = 2.0 * std::numbers::pi * 0x1p-32 * to_double(words[2 * i + 1]);
    }
    for (size_t i = 0; i < pairs; ++i) u[i] = scale * std::sqrt(-2.0 * logarithm(u[i]));
    for (size_t i = 0; i < pairs; ++i) {
      const auto [x, y] = cos_sin(v[i]);
      out[2 * i] = static_cast<float>(u[i] * x);
      out[2 * i + 1] = static_cast<float>(u[i] * y);
    }
  }
};

}  // namespace

void box_muller(const uint32_t* words, size_t pairs, double scale, float* out) {
  vectorised<BoxMuller>(words, pairs, scale, out);
}

}  // namespace evenkeel
