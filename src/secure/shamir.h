/// \file  Splits a secret among the members of a round so that any `threshold` of them can join it again, and fewer
/// learn nothing (Shamir 1979). Each byte is shared by itself with a polynomial over GF(2^8), modulo x^8 + x^4 + x^3 +
/// x + 1. The share of the member at place p is the value at x = p + 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "crypto/secret.h"

namespace evenkeel::secure {

inline constexpr int kMostShares = 254;

/// One member's share of a secret.
struct Share {
  int place = 0;  ///< of the member that holds it, from 0
  crypto::Secret value{};
};

/// Splits `secret` with random coefficients. \return one share per place 0 .. members - 1
/// \throws kInternal unless 1 <= threshold <= members <= kMostShares; kIo without random bytes
std::vector<Share> split(const crypto::Secret& secret, int members, int threshold);
/// Splits `secret` with the given coefficients of x, x^2 and so on: threshold - 1 of them.
std::vector<Share> split(const crypto::Secret& secret, int members, std::span<const crypto::Secret> coefficients);

/// Returns the secret of `threshold` shares. Wrong or too few shares give wrong bytes, which the caller must notice.
/// \throws kInternal for no shares or two of one place
crypto::Secret joined(std::span<const Share> shares);

}  // namespace evenkeel::secure
