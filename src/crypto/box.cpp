#include "crypto/box.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <array>
#include <memory>

#include "base/plain/error.h"

namespace evenkeel::crypto {
namespace {

constexpr std::array<uint8_t, 12> kNonce{};

using Context = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

/// Makes a context that has seen the associated bytes.
Context begun(const Secret& key, std::string_view associated, int encrypt) {
  Context context(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  int written = 0;
  EK_CHECK(context &&
               EVP_CipherInit_ex(context.get(), EVP_chacha20_poly1305(), nullptr, key.bytes().data(), kNonce.data(),
                                 encrypt) == 1 &&
               EVP_CipherUpdate(context.get(), nullptr, &written, bytes_of(associated).data(),
                                static_cast<int>(associated.size())) == 1,
           kInternal, "ChaCha20-Poly1305 cannot be set up");
  return context;
}

/// Encrypts or decrypts `in`, and ends the message.
bool finished(EVP_CIPHER_CTX* context, std::string_view in, std::string& out) {
  out.resize(in.size());
  auto* to = reinterpret_cast<uint8_t*>(out.data());
  int written = 0, last = 0;
  const bool updated = EVP_CipherUpdate(context, to, &written, bytes_of(in).data(), static_cast<int>(in.size())) == 1;
  return updated && EVP_CipherFinal_ex(context, to + written, &last) == 1;
}

}  // namespace

std::string seal_box(const Secret& key, std::string_view associated, std::string_view text) {
  const Context context = begun(key, associated, 1);
  std::string box, tag(kBoxTag, '\0');
  EK_CHECK(finished(context.get(), text, box) &&
               EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kBoxTag, tag.data()) == 1,
           kInternal, "ChaCha20-Poly1305 seals nothing");
  return box + tag;
}

std::optional<std::string> open_box(const Secret& key, std::string_view associated, std::string_view box) {
  if (box.size() < kBoxTag) return {};
  const Context context = begun(key, associated, 0);
  std::string tag(box.substr(box.size() - kBoxTag)), text;
  EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kBoxTag, tag.data());
  const bool genuine = finished(context.get(), box.substr(0, box.size() - kBoxTag), text);
  ERR_clear_error();
  if (genuine) return text;
  wipe(text);
  return {};
}

}  // namespace evenkeel::crypto
