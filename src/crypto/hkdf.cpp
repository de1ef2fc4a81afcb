#include "crypto/hkdf.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <array>
#include <memory>

#include "base/plain/error.h"

namespace evenkeel::crypto {
namespace {

OSSL_PARAM bytes_param(const char* name, std::string_view bytes) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(bytes.data()), bytes.size());
}

/// \param mode  HKDF's mode in OpenSSL: both steps, or one of them
Secret derived(int mode, std::string_view salt, std::string_view input_key, std::string_view info) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr), EVP_KDF_free);
  EK_CHECK(kdf, kInternal, "this OpenSSL has no HKDF");
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(kdf.get()), EVP_KDF_CTX_free);
  std::string digest = "SHA256";
  const std::array<OSSL_PARAM, 6> params = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
                                            OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
                                            bytes_param(OSSL_KDF_PARAM_KEY, input_key),
                                            bytes_param(OSSL_KDF_PARAM_SALT, salt),
                                            bytes_param(OSSL_KDF_PARAM_INFO, info),
                                            OSSL_PARAM_construct_end()};
  Secret out;
  EK_CHECK(context && EVP_KDF_derive(context.get(), out.bytes().data(), out.bytes().size(), params.data()) == 1,
           kInternal, "HKDF derives no key");
  return out;
}

template <size_t Bytes>
void append_be(std::string& text, uint64_t value) {
  for (size_t i = 0; i < Bytes; ++i) text += static_cast<char>(value >> (8 * (Bytes - 1 - i)));
}

}  // namespace

Secret hkdf(std::string_view salt, std::string_view input_key, std::string_view info) {
  return derived(EVP_KDF_HKDF_MODE_EXTRACT_AND_EXPAND, salt, input_key, info);
}

Secret hkdf_expand(const Secret& key, std::string_view info) {
  return derived(EVP_KDF_HKDF_MODE_EXPAND_ONLY, "", key.view(), info);
}

void append_be16(std::string& text, uint16_t value) { append_be<2>(text, value); }
void append_be64(std::string& text, uint64_t value) { append_be<8>(text, value); }

}  // namespace evenkeel::crypto
