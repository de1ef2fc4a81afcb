#include "crypto/chacha20.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/plain/error.h"

namespace evenkeel::crypto {
namespace {

// OpenSSL takes lengths as int.
constexpr size_t kLongestCall = size_t{1} << 30;

std::array<uint8_t, 16> iv_of(uint64_t section, uint64_t block) {
  std::array<uint8_t, 16> iv{};
  for (size_t i = 0; i < 8; ++i) {
    iv[i] = static_cast<uint8_t>(block >> (8 * i));
    iv[8 + i] = static_cast<uint8_t>(section >> (8 * i));
  }
  return iv;
}

}  // namespace

ChaCha20::ChaCha20(const Secret& key, uint64_t section, uint64_t block)
    : section_(section), context_(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free) {
  EK_CHECK(context_ && EVP_EncryptInit_ex(context_.get(), EVP_chacha20(), nullptr, key.bytes().data(), nullptr) == 1,
           kInternal, "ChaCha20 cannot be set up");
  seek(block);
}

void ChaCha20::seek(uint64_t block) {
  const auto iv = iv_of(section_, block);
  EK_CHECK(EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, iv.data()) == 1, kInternal,
           "ChaCha20 cannot go to a block");
}

void ChaCha20::read(std::span<uint8_t> out) {
  std::fill(out.begin(), out.end(), uint8_t{0});
  for (size_t at = 0; at < out.size(); at += kLongestCall) {
    const auto part = out.subspan(at, std::min(kLongestCall, out.size() - at));
    int written = 0;
    EK_CHECK(EVP_EncryptUpdate(context_.get(), part.data(), &written, part.data(), static_cast<int>(part.size())) == 1,
             kInternal, "ChaCha20 gives no bytes");
  }
}

}  // namespace evenkeel::crypto
