#include "crypto/x25519.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <memory>

#include "base/plain/error.h"

namespace evenkeel::crypto {
namespace {

using OwnedKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using OwnedContext = std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)>;

OwnedKey private_key(const Secret& secret) {
  OwnedKey key(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, secret.bytes().data(), secret.bytes().size()),
               EVP_PKEY_free);
  EK_CHECK(key, kInternal, "this OpenSSL has no X25519");
  return key;
}

}  // namespace

Bytes32 x25519_public(const Secret& secret) {
  const OwnedKey key = private_key(secret);
  Bytes32 out{};
  size_t size = out.size();
  EK_CHECK(EVP_PKEY_get_raw_public_key(key.get(), out.data(), &size) == 1 && size == out.size(), kInternal,
           "X25519 gives no public key");
  return out;
}

Secret x25519(const Secret& secret, const Bytes32& peer) {
  const OwnedKey own = private_key(secret);
  const OwnedKey other(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, peer.data(), peer.size()), EVP_PKEY_free);
  const OwnedContext context(EVP_PKEY_CTX_new(own.get(), nullptr), EVP_PKEY_CTX_free);
  Secret out;
  size_t size = out.bytes().size();
  const bool agreed = other && context && EVP_PKEY_derive_init(context.get()) == 1 &&
                      EVP_PKEY_derive_set_peer(context.get(), other.get()) == 1 &&
                      EVP_PKEY_derive(context.get(), out.bytes().data(), &size) == 1;
  ERR_clear_error();
  EK_CHECK(agreed && !(out == Secret()), kData, "a public key of X25519 that gives everybody the same secret");
  return out;
}

}  // namespace evenkeel::crypto
