#include "flower/format/keys.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <array>
#include <set>

#include "base/plain/base64.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/key_fingerprint.h"
#include "base/plain/private_file.h"
#include "base/plain/text.h"
#include "flower/format/openssh_private.h"

namespace evenkeel::flower {
namespace {

constexpr size_t kLongestPem = 4096;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Freer<Free>>;
using OwnedBio = Owned<BIO, BIO_free>;
using OwnedNumber = Owned<BIGNUM, BN_free>;
using OwnedPkeyContext = Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free>;
using OwnedParams = Owned<OSSL_PARAM, OSSL_PARAM_free>;
using OwnedParamBuilder = Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free>;
using OwnedDigest = Owned<EVP_MD_CTX, EVP_MD_CTX_free>;

struct Curve {
  std::string_view openssl, openssh;
  size_t field;  ///< bytes of a coordinate
};
constexpr std::array kCurves = {Curve{"secp384r1", "nistp384", 48}, Curve{"prime256v1", "nistp256", 32}};

std::shared_ptr<void> shared(EVP_PKEY* key) {
  return {key, [](void* owned) { EVP_PKEY_free(static_cast<EVP_PKEY*>(owned)); }};
}
EVP_PKEY* raw(const std::shared_ptr<void>& key) { return static_cast<EVP_PKEY*>(key.get()); }

/// Returns the curve of a key, or null if it is on another curve or not an EC key.
const Curve* curve_of(EVP_PKEY* key) {
  std::array<char, 64> name{};
  if (EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_GROUP_NAME, name.data(), name.size(), nullptr) != 1)
    return nullptr;
  for (const Curve& curve : kCurves)
    if (curve.openssl == name.data()) return &curve;
  return nullptr;
}

OwnedBio memory(std::string_view text) { return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

/// A password callback that fails, so that an encrypted key is rejected without a prompt.
int no_password(char*, int, int, void*) { return -1; }

/// Returns the uncompressed point, 04 X Y, whatever format the key was read from.
std::string point_of(EVP_PKEY* key, const Curve& curve) {
  std::string point(1, '\x04');
  for (const char* axis : {OSSL_PKEY_PARAM_EC_PUB_X, OSSL_PKEY_PARAM_EC_PUB_Y}) {
    BIGNUM* number = nullptr;
    EK_CHECK(EVP_PKEY_get_bn_param(key, axis, &number) == 1, kInternal, "a key without its point");
    const OwnedNumber owned(number);
    std::string bytes(curve.field, '\0');
    BN_bn2binpad(number, reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
    point += bytes;
  }
  return point;
}

std::string blob_of(EVP_PKEY* key, const Curve& curve) {
  std::string blob;
  put_ssh_string(blob, concat("ecdsa-sha2-", curve.openssh));
  put_ssh_string(blob, curve.openssh);
  put_ssh_string(blob, point_of(key, curve));
  return blob;
}

std::shared_ptr<void> key_of_point(const Curve& curve, std::string_view point) {
  const OwnedPkeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  std::string group(curve.openssl), bytes(point);
  std::array<OSSL_PARAM, 3> params = {
      OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, bytes.data(), bytes.size()),
      OSSL_PARAM_construct_end()};
  EVP_PKEY* key = nullptr;
  if (!context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params.data()) != 1)
    return nullptr;
  return shared(key);
}

/// Returns a private key of its numbers, or null if they are none or do not belong together.
std::shared_ptr<void> key_of_numbers(const Curve& curve, const EcNumbers& numbers) {
  const OwnedNumber scalar(BN_bin2bn(reinterpret_cast<const unsigned char*>(numbers.scalar.data()),
                                     static_cast<int>(numbers.scalar.size()), nullptr));
  const OwnedParamBuilder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, curve.openssl.data(), 0);
  OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, numbers.point.data(), numbers.point.size());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, scalar.get());
  const OwnedParams params(OSSL_PARAM_BLD_to_param(builder.get()));
  const OwnedPkeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* made = nullptr;
  if (!scalar || !params || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_KEYPAIR, params.get()) != 1)
    return nullptr;
  auto key = shared(made);
  const OwnedPkeyContext check(EVP_PKEY_CTX_new_from_pkey(nullptr, made, nullptr));
  return check && EVP_PKEY_check(check.get()) == 1 ? key : nullptr;
}

std::shared_ptr<void> key_of_openssh(std::string_view text, std::string_view place) {
  const auto numbers = parse_openssh_private(text, place);
  for (const Curve& curve : kCurves) {
    if (numbers.curve != curve.openssh) continue;
    auto key = key_of_numbers(curve, numbers);
    ERR_clear_error();
    EK_CHECK(key, kConfig, place, " is a private key whose numbers do not belong together");
    return key;
  }
  fail(kConfig, place, " is a key of another kind, allowed: EC on P-384 or P-256");
}

std::shared_ptr<void> key_of_pkcs8(std::string_view text, std::string_view place) {
  const OwnedBio bio = memory(text);
  auto key = shared(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  EK_CHECK(key, kConfig, place, " is no private key in PKCS#8 PEM or OpenSSH's format without a password");
  EK_CHECK(curve_of(raw(key)), kConfig, place, " is a key of another kind, allowed: EC on P-384 or P-256");
  return key;
}

std::string pkcs8_text(EVP_PKEY* key) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  EK_CHECK(PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1, kInternal,
           "a private key cannot be written");
  return text_of(bio.get());
}

std::string openssh_text(EVP_PKEY* key, std::string_view comment) {
  const Curve& curve = *curve_of(key);
  BIGNUM* number = nullptr;
  uint32_t check = 0;
  EK_CHECK(EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1 &&
               RAND_bytes(reinterpret_cast<unsigned char*>(&check), sizeof check) == 1,
           kInternal, "a private key cannot be written");
  const OwnedNumber owned(number);
  EcNumbers numbers{
      .curve = std::string(curve.openssh), .point = point_of(key, curve), .scalar = std::string(curve.field, '\0')};
  BN_bn2binpad(number, reinterpret_cast<unsigned char*>(numbers.scalar.data()), static_cast<int>(curve.field));
  return openssh_private_text(numbers, comment, check);
}

}  // namespace

PublicKey::PublicKey(std::shared_ptr<void> key)
    : key_(std::move(key)), blob_(blob_of(raw(key_), *curve_of(raw(key_)))) {}

PublicKey PublicKey::from_pem(std::string_view pem, std::string_view place) {
  EK_CHECK(pem.size() <= kLongestPem, kData, place, ": a public key of ", pem.size(), " bytes");
  const OwnedBio bio = memory(pem);
  auto key = shared(PEM_read_bio_PUBKEY(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  EK_CHECK(key, kData, place, ": no public key in PEM");
  EK_CHECK(curve_of(raw(key)), kData, place, ": a public key of another kind, allowed: EC on P-384 or P-256");
  return PublicKey(std::move(key));
}

PublicKey PublicKey::from_openssh(std::string_view blob, std::string_view place) {
  std::string_view rest = blob;
  const auto kind = take_ssh_string(rest), name = take_ssh_string(rest), point = take_ssh_string(rest);
  EK_CHECK(kind && name && point && rest.empty(), kData, place, ": no OpenSSH public key");
  for (const Curve& curve : kCurves) {
    if (*name != curve.openssh || *kind != concat("ecdsa-sha2-", curve.openssh)) continue;
    auto key = point->size() == 1 + 2 * curve.field ? key_of_point(curve, *point) : nullptr;
    ERR_clear_error();
    EK_CHECK(key, kData, place, ": a public key whose point is not on its curve");
    return PublicKey(std::move(key));
  }
  fail(kData, place, ": a key of kind ", shown(*kind), ", allowed: ecdsa-sha2-nistp384, ecdsa-sha2-nistp256");
}

std::string PublicKey::pem() const {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  EK_CHECK(PEM_write_bio_PUBKEY(bio.get(), raw(key_)) == 1, kInternal, "a public key cannot be written");
  return text_of(bio.get());
}

std::string PublicKey::fingerprint() const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  size_t length = 0;
  EVP_Q_digest(nullptr, "SHA256", nullptr, blob_.data(), blob_.size(), digest.data(), &length);
  std::string text = to_base64({reinterpret_cast<const char*>(digest.data()), length});
  text.resize(std::min(text.find('='), text.size()));
  return "SHA256:" + text;
}

bool PublicKey::signed_by(std::string_view text, std::string_view signature) const {
  const OwnedDigest context(EVP_MD_CTX_new());
  const bool good =
      EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, raw(key_)) == 1 &&
      EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                       reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  ERR_clear_error();
  return good;
}

Key Key::make() {
  EVP_PKEY* key = EVP_EC_gen(kCurves[0].openssl.data());
  EK_CHECK(key, kInternal, "no key can be made");
  return Key(shared(key));
}

Key Key::load(const fs::path& file) {
  const std::string text = read_file(file, kLongestPem);
  require_private_file(file);
  return Key(is_openssh_private(text) ? key_of_openssh(text, file.string()) : key_of_pkcs8(text, file.string()));
}

void Key::save(const fs::path& file, KeyFormat format, std::string_view comment) const {
  const std::string text = format == KeyFormat::kOpenssh ? openssh_text(raw(key_), comment) : pkcs8_text(raw(key_));
  EK_CHECK(write_new_private_file(file, text), kIo, file.string(), " is there already; a key is never written over");
}

PublicKey Key::public_key() const {
  const Curve& curve = *curve_of(raw(key_));
  return PublicKey(key_of_point(curve, point_of(raw(key_), curve)));
}

std::string Key::sign(std::string_view text) const {
  const OwnedDigest context(EVP_MD_CTX_new());
  std::string signature(256, '\0');
  size_t length = signature.size();
  const bool good = EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, raw(key_)) == 1 &&
                    EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &length,
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  EK_CHECK(good, kInternal, "a key does not sign");
  signature.resize(length);
  return signature;
}

Key make_key(const fs::path& file, KeyFormat format, std::string_view comment) {
  Key key = Key::make();
  key.save(file, format, comment);
  return key;
}

// ---- allow-lists

namespace {

bool is_line(std::string_view text) { return is_utf8(text) && escaped(text) == text; }

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find_first_of(" \t"), text.size());
  const auto word = text.substr(0, end);
  text = trimmed(text.substr(end));
  return word;
}

/// Removes the last word of a comment if it begins with kReplaces. \return the fingerprint in it; empty if there is
/// none
std::string take_replaced(std::string_view& comment, const std::string& place) {
  const size_t space = comment.find_last_of(" \t");
  const auto last = comment.substr(space == std::string_view::npos ? 0 : space + 1);
  if (!last.starts_with(kReplaces)) return {};
  const auto fingerprint = last.substr(kReplaces.size());
  EK_CHECK(is_key_fingerprint(fingerprint), kConfig, place, ": replaces is \"", shown(fingerprint),
           "\", allowed: the SHA-256 fingerprint of a key, SHA256: and 43 letters and digits");
  comment = trimmed(comment.substr(0, comment.size() - last.size()));
  return std::string(fingerprint);
}

AllowedKey parse_line(std::string_view line, const std::string& place) {
  const auto kind = take_word(line);
  const auto blob = from_base64(take_word(line));
  EK_CHECK(kind.starts_with("ecdsa-sha2-nistp") && blob, kConfig, place,
           " is no OpenSSH public key (ecdsa-sha2-nistp384 AAAA... NAME), but ", shown(kind));
  EK_CHECK(is_line(line), kConfig, place, ": the name is no line of text");
  try {
    auto key = PublicKey::from_openssh(*blob, place);
    auto replaces = take_replaced(line, place);
    std::string name = line.empty() ? key.fingerprint() : std::string(line);
    return {.key = std::move(key), .name = std::move(name), .replaces = std::move(replaces)};
  } catch (const Error& error) {
    throw Error(kConfig, error.message());
  }
}

/// Checks that each replaced key is replaced once, and is not allowed any more.
void check_replaced(const std::vector<AllowedKey>& keys, std::string_view place) {
  std::set<std::string> allowed, replaced;
  for (const auto& key : keys) allowed.insert(key.key.fingerprint());
  for (const auto& key : keys) {
    if (key.replaces.empty()) continue;
    EK_CHECK(!allowed.contains(key.replaces), kConfig, place, ": the key of ", shown(key.name), " replaces ",
             key.replaces, ", which is in the list too: remove the line of the replaced key");
    EK_CHECK(replaced.insert(key.replaces).second, kConfig, place, ": two keys replace ", key.replaces);
  }
}

}  // namespace

void check_key_name(std::string_view comment) {
  EK_CHECK(is_line(comment), kConfig, "the name of a key is \"", shown(comment), "\", allowed: one line of text");
}

std::string openssh_line(const PublicKey& key, std::string_view comment) {
  check_key_name(comment);
  std::string_view blob = key.openssh_blob();
  const std::string kind(*take_ssh_string(blob));
  return concat(kind, " ", to_base64(key.openssh_blob()), comment.empty() ? "" : " ", comment);
}

std::vector<AllowedKey> parse_allow_list(std::string_view text, std::string_view place) {
  std::vector<AllowedKey> keys;
  std::set<std::string> blobs, names;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const auto line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#')) continue;
    const std::string where = concat(place, ", line ", number);
    auto key = parse_line(line, where);
    EK_CHECK(blobs.insert(key.key.openssh_blob()).second, kConfig, where, ": this key stands twice");
    EK_CHECK(names.insert(key.name).second, kConfig, where, ": the name \"", shown(key.name), "\" stands twice");
    keys.push_back(std::move(key));
  }
  EK_CHECK(!keys.empty(), kConfig, place, " allows no key");
  check_replaced(keys, place);
  return keys;
}

std::vector<AllowedKey> read_allow_list(const fs::path& file) {
  return parse_allow_list(read_file(file, size_t{16} << 20), file.string());
}

}  // namespace evenkeel::flower
