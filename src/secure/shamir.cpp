#include "secure/shamir.h"

#include "base/plain/error.h"

namespace evenkeel::secure {
namespace {

/// Multiplies in GF(2^8), in a time that does not depend on the factors.
uint8_t times(uint8_t a, uint8_t b) {
  uint8_t product = 0;
  for (int bit = 0; bit < 8; ++bit) {
    product = static_cast<uint8_t>(product ^ (a & -(b & 1)));
    const auto carry = static_cast<uint8_t>(-(a >> 7));
    a = static_cast<uint8_t>((a << 1) ^ (carry & 0x1b));
    b = static_cast<uint8_t>(b >> 1);
  }
  return product;
}

/// Returns a^254, which is 1 / a.
uint8_t inverse(uint8_t a) {
  uint8_t result = 1, power = a;
  for (int bit = 1; bit < 8; ++bit) {
    power = times(power, power);
    result = times(result, power);
  }
  return result;
}

uint8_t point(const Share& share) { return static_cast<uint8_t>(share.place + 1); }

/// Returns the Lagrange coefficient of a share at x = 0.
uint8_t coefficient_at_zero(std::span<const Share> shares, size_t own) {
  uint8_t above = 1, below = 1;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (i == own) continue;
    const auto difference = static_cast<uint8_t>(point(shares[i]) ^ point(shares[own]));
    EK_CHECK(difference != 0, kInternal, "two shares of place ", shares[own].place);
    above = times(above, point(shares[i]));
    below = times(below, difference);
  }
  return times(above, inverse(below));
}

}  // namespace

std::vector<Share> split(const crypto::Secret& secret, int members, std::span<const crypto::Secret> coefficients) {
  std::vector<Share> shares(static_cast<size_t>(members));
  for (int place = 0; place < members; ++place) {
    auto& share = shares[static_cast<size_t>(place)];
    share.place = place;
    for (size_t byte = 0; byte < secret.bytes().size(); ++byte) {
      uint8_t value = 0;  // by Horner's rule, from the highest power
      for (size_t i = coefficients.size(); i-- > 0;)
        value = static_cast<uint8_t>(times(value, point(share)) ^ coefficients[i].bytes()[byte]);
      share.value.bytes()[byte] = static_cast<uint8_t>(times(value, point(share)) ^ secret.bytes()[byte]);
    }
  }
  return shares;
}

std::vector<Share> split(const crypto::Secret& secret, int members, int threshold) {
  EK_CHECK(threshold >= 1 && threshold <= members && members <= kMostShares, kInternal, "a secret in ", members,
           " shares of which ", threshold, " join it");
  std::vector<crypto::Secret> coefficients;
  for (int i = 1; i < threshold; ++i) coefficients.push_back(crypto::Secret::random());
  return split(secret, members, coefficients);
}

crypto::Secret joined(std::span<const Share> shares) {
  EK_CHECK(!shares.empty(), kInternal, "a secret of no shares");
  crypto::Secret secret;
  for (size_t i = 0; i < shares.size(); ++i) {
    const uint8_t coefficient = coefficient_at_zero(shares, i);
    for (size_t byte = 0; byte < secret.bytes().size(); ++byte)
      secret.bytes()[byte] =
          static_cast<uint8_t>(secret.bytes()[byte] ^ times(coefficient, shares[i].value.bytes()[byte]));
  }
  return secret;
}

}  // namespace evenkeel::secure
