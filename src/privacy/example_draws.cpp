#include "privacy/example_draws.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/random/box_muller.h"
#include "crypto/chacha20.h"
#include "crypto/hkdf.h"

namespace evenkeel::privacy {

crypto::Secret ExampleDraws::key_of(int64_t step) const {
  std::string info = "evenkeel dp step 1";
  info += '\0';
  crypto::append_be64(info, static_cast<uint64_t>(step));
  return crypto::hkdf_expand(key_, info);
}

std::vector<int64_t> ExampleDraws::lot(int64_t step, int64_t rows, double probability) const {
  constexpr uint64_t kRowsAtOnce = 512;
  crypto::ChaCha20 stream(key_of(step));  // section 0; those above are the noise
  const bool all = probability >= 1;
  const auto bound = all ? 0 : static_cast<uint64_t>(std::ldexp(probability, 64));
  std::array<uint8_t, 8 * kRowsAtOnce> bytes;
  std::vector<int64_t> drawn;
  for (int64_t row = 0; row < rows; ++row) {
    const size_t place = static_cast<size_t>(row) % kRowsAtOnce;
    if (place == 0) stream.read(bytes);
    uint64_t value = 0;
    for (size_t byte = 0; byte < 8; ++byte) value |= uint64_t{bytes[8 * place + byte]} << (8 * byte);
    if (all || value < bound) drawn.push_back(row);
  }
  return drawn;
}

void ExampleDraws::add_noise(int64_t step, int64_t tensor, double deviation, std::span<float> values) const {
  crypto::ChaCha20 stream(key_of(step), static_cast<uint64_t>(tensor) + 1);
  std::array<uint8_t, 8 * kPairsAtOnce> bytes;
  std::array<uint32_t, 2 * kPairsAtOnce> words;
  std::array<float, 2 * kPairsAtOnce> normals;
  while (!values.empty()) {
    const size_t count = std::min(values.size(), normals.size());
    stream.read(bytes);
    for (size_t i = 0; i < words.size(); ++i)
      words[i] = uint32_t{bytes[4 * i]} | uint32_t{bytes[4 * i + 1]} << 8 | uint32_t{bytes[4 * i + 2]} << 16 |
                 uint32_t{bytes[4 * i + 3]} << 24;
    box_muller(words.data(), kPairsAtOnce, deviation, normals.data());
    for (size_t i = 0; i < count; ++i) values[i] += normals[i];
    values = values.subspan(count);
  }
}

}  // namespace evenkeel::privacy
