#include "base/plain/sha256.h"

#include <openssl/evp.h>

#include "base/plain/error.h"
#include "base/plain/hex.h"

namespace evenkeel {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  EK_CHECK(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, kInternal,
           "SHA-256 cannot be set up");
}

void Sha256::update(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

std::array<uint8_t, 32> Sha256::bytes() {
  std::array<uint8_t, 32> digest{};
  EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
  return digest;
}

std::string Sha256::hex() { return to_hex(bytes()); }

}  // namespace evenkeel
