#include "base/format/sha256_streams.h"

#include <algorithm>
#include <cstring>

#include "base/system/dispatch.h"

namespace evenkeel {
namespace {

// Source: FIPS 180-4. These are the first 32 bits of the fractional parts of cube and square roots of primes.
constexpr std::array<uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
constexpr std::array<uint32_t, 8> kBeginning = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/// One word of each stream. The compiler splits the vector if registers are narrower.
using Lanes = uint32_t __attribute__((vector_size(4 * Sha256Streams::kStreams), aligned(4)));

#define EK_ROTATED(x, n) (((x) >> (n)) | ((x) << (32 - (n))))

EK_INLINE void swap_bytes(Lanes& x) { x = (EK_ROTATED(x, 8) & 0xff00ff00U) | (EK_ROTATED(x, 24) & 0x00ff00ffU); }

struct Compress {
  static EK_INLINE void run(uint32_t* state, const char* bytes, size_t blocks) {
    Lanes s[8];
    std::memcpy(s, state, sizeof s);
    for (; blocks > 0; --blocks, bytes += Sha256Streams::kBlock) {
      Lanes w[16];
      std::memcpy(w, bytes, sizeof w);
      Lanes a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
#pragma GCC unroll 64
      for (int t = 0; t < 64; ++t) {
        Lanes& word = w[t & 15];
        if (t < 16) {
          swap_bytes(word);
        } else {
          const Lanes x = w[(t + 1) & 15], y = w[(t + 14) & 15];
          word += (EK_ROTATED(x, 7) ^ EK_ROTATED(x, 18) ^ (x >> 3)) + w[(t + 9) & 15] +
                  (EK_ROTATED(y, 17) ^ EK_ROTATED(y, 19) ^ (y >> 10));
        }
        const Lanes first = h + (EK_ROTATED(e, 6) ^ EK_ROTATED(e, 11) ^ EK_ROTATED(e, 25)) + (g ^ (e & (f ^ g))) +
                            (word + kRoundConstants[static_cast<size_t>(t)]);
        const Lanes second = (EK_ROTATED(a, 2) ^ EK_ROTATED(a, 13) ^ EK_ROTATED(a, 22)) + ((a & b) | (c & (a | b)));
        h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
      }
      s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e, s[5] += f, s[6] += g, s[7] += h;
    }
    std::memcpy(state, s, sizeof s);
  }
};

#undef EK_ROTATED

}  // namespace

Sha256Streams::Sha256Streams() {
  for (size_t i = 0; i < state_.size(); ++i) state_[i] = kBeginning[i / kStreams];
}

void Sha256Streams::update(std::string_view bytes) {
  vectorised<Compress>(state_.data(), bytes.data(), bytes.size() / kBlock);
  blocks_ += bytes.size() / kBlock;
}

std::array<char, 32 * Sha256Streams::kStreams> Sha256Streams::finish() {
  std::array<uint32_t, 16 * kStreams> last{};  // the padding block: a bit of 1, zeros, and the length in bits
  const uint64_t bits = blocks_ * 512;
  for (size_t s = 0; s < kStreams; ++s) {
    last[s] = 0x80;
    last[14 * kStreams + s] = __builtin_bswap32(static_cast<uint32_t>(bits >> 32));
    last[15 * kStreams + s] = __builtin_bswap32(static_cast<uint32_t>(bits));
  }
  update({reinterpret_cast<const char*>(last.data()), sizeof last});
  std::array<char, 32 * kStreams> digests{};
  for (size_t s = 0; s < kStreams; ++s)
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t word = __builtin_bswap32(state_[i * kStreams + s]);
      std::memcpy(digests.data() + 32 * s + 4 * i, &word, 4);
    }
  return digests;
}

}  // namespace evenkeel
