#include "privacy/discrete_gaussian.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/plain/error.h"

namespace evenkeel::privacy {
namespace {

constexpr int64_t kValuesOfSection = 65536;

int bits_of(Uint128 value) {
  const auto high = static_cast<uint64_t>(value >> 64), low = static_cast<uint64_t>(value);
  return high ? 128 - std::countl_zero(high) : 64 - std::countl_zero(low);
}

/// Returns the integer part of the square root.
int64_t root_of(int64_t value) {
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(value)));
  while (root * root > value) --root;
  while ((root + 1) * (root + 1) <= value) ++root;
  return root;
}

}  // namespace

uint8_t DiscreteGaussian::next_byte() {
  if (next_ == buffer_.size()) stream_.read(buffer_), next_ = 0;
  ++bytes_used_;
  return buffer_[next_++];
}

Uint128 DiscreteGaussian::below(Uint128 bound) {
  const int bits = bits_of(bound - 1);
  if (bits == 0) return 0;
  const Uint128 mask = ~Uint128{0} >> (128 - bits);
  for (;;) {
    Uint128 drawn = 0;
    for (int byte = 0; byte < (bits + 7) / 8; ++byte) drawn |= Uint128{next_byte()} << (8 * byte);
    if ((drawn &= mask) < bound) return drawn;
  }
}

/// Returns true with probability exp(-a / b). REQUIRES a <= b.
bool DiscreteGaussian::exp_up_to_one(Uint128 a, Uint128 b) {
  Uint128 k = 1;
  while (below(b * k) < a) ++k;
  return k % 2 == 1;
}

/// Returns true with probability exp(-a / b).
bool DiscreteGaussian::exp_of(Uint128 a, Uint128 b) {
  for (; a > b; a -= b)
    if (!exp_up_to_one(1, 1)) return false;
  return exp_up_to_one(a, b);
}

int64_t DiscreteGaussian::laplace(int64_t scale) {
  for (;;) {
    const auto rest = static_cast<int64_t>(below(static_cast<Uint128>(scale)));
    if (!exp_up_to_one(static_cast<Uint128>(rest), static_cast<Uint128>(scale))) continue;
    int64_t whole = 0;
    while (exp_up_to_one(1, 1)) ++whole;
    const int64_t size = rest + scale * whole;
    const bool negative = next_byte() % 2 == 1;
    if (negative && size == 0) continue;  // otherwise 0 would be drawn twice as often
    return negative ? -size : size;
  }
}

int64_t DiscreteGaussian::draw(int64_t variance) {
  const int64_t scale = root_of(variance) + 1;
  const auto wide_scale = static_cast<Uint128>(scale), wide_variance = static_cast<Uint128>(variance);
  const Uint128 divisor = 2 * wide_variance * wide_scale * wide_scale;
  for (;;) {
    const int64_t drawn = laplace(scale);
    const Uint128 product = static_cast<Uint128>(std::abs(drawn)) * wide_scale;
    const Uint128 distance = product > wide_variance ? product - wide_variance : wide_variance - product;
    if (exp_of(distance * distance, divisor)) return drawn;
  }
}

void add_discrete_gaussian(std::span<int64_t> values, int64_t variance, const crypto::Secret& key) {
  EK_CHECK(variance >= 1 && variance <= kMostVariance, kConfig, "privacy: the variance of the noise is ", variance,
           ", allowed: 1 to 2^56; choose a smaller noise multiplier");
  const auto count = static_cast<int64_t>(values.size());
  const int64_t sections = (count + kValuesOfSection - 1) / kValuesOfSection;
  at::parallel_for(0, sections, 1, [&](int64_t begin, int64_t end) {
    for (int64_t section = begin; section < end; ++section) {
      DiscreteGaussian noise(key, static_cast<uint64_t>(section));
      const int64_t last = std::min(count, (section + 1) * kValuesOfSection);
      for (int64_t i = section * kValuesOfSection; i < last; ++i)
        values[static_cast<size_t>(i)] += noise.draw(variance);
    }
  });
}

}  // namespace evenkeel::privacy
