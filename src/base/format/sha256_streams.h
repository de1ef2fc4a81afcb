/// \file  Computes the SHA-256 of sixteen texts at once, one per lane of a vector register. On processors without
/// SHA-256 instructions this is several times as fast as hashing one text after another. Does not depend on LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace evenkeel {

/// Hashes sixteen interleaved texts. For one thread. Text s consists of the 4-byte words s, s + 16, s + 32 … of all
/// bytes passed to update().
/// Example:  Sha256Streams streams;  streams.update(bytes);  streams.finish();
class Sha256Streams {
 public:
  static constexpr int kStreams = 16;
  static constexpr size_t kBlock = 64 * kStreams;  ///< update() takes a multiple of this many bytes
  using Words = std::array<uint32_t, 8 * kStreams>;

  Sha256Streams();
  /// Hashes further bytes. REQUIRES a multiple of kBlock bytes.
  void update(std::string_view bytes);
  /// Returns the sixteen digests, 32 bytes each, in the order of the texts. The object must not be used afterwards.
  std::array<char, 32 * kStreams> finish();

 private:
  Words state_;          // [8][kStreams]
  uint64_t blocks_ = 0;  ///< number of kBlock-sized blocks hashed so far
};

}  // namespace evenkeel
