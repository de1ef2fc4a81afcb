#include "crypto/secret.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/hex.h"

namespace evenkeel::crypto {

void wipe(std::span<uint8_t> bytes) { OPENSSL_cleanse(bytes.data(), bytes.size()); }

void wipe(std::string& bytes) {
  OPENSSL_cleanse(bytes.data(), bytes.size());
  bytes.clear();
}

void random_bytes(std::span<uint8_t> bytes) {
  EK_CHECK(RAND_priv_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, kIo,
           "the operating system gives no random bytes");
}

std::string random_hex(size_t bytes) {
  std::vector<uint8_t> drawn(bytes);
  random_bytes(drawn);
  return to_hex(drawn);
}

Secret Secret::from(std::string_view bytes, std::string_view place) {
  Secret secret;
  EK_CHECK(bytes.size() == secret.bytes_.size(), kData, place, " has ", bytes.size(), " bytes, allowed: 32");
  std::copy(bytes.begin(), bytes.end(), secret.bytes_.begin());
  return secret;
}

Secret Secret::random() {
  Secret secret;
  random_bytes(secret.bytes_);
  return secret;
}

bool Secret::operator==(const Secret& other) const {
  return CRYPTO_memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
}

}  // namespace evenkeel::crypto
