#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/hex.h"
#include "crypto/box.h"
#include "crypto/chacha20.h"
#include "crypto/hkdf.h"
#include "crypto/testing.h"
#include "crypto/x25519.h"

namespace evenkeel::crypto {
namespace {

using evenkeel::testing::hex;
using evenkeel::testing::secret_of;
using evenkeel::testing::sha256_of;

// The expected values below were computed with Python's `cryptography`; Tests that name an RFC have its own.
std::string context() { return std::string(view_of(sha256_of("evenkeel secagg vector 1"))); }

std::string stream_bytes(const Secret& key, uint64_t section, uint64_t block, size_t count) {
  std::vector<uint8_t> out(count);
  ChaCha20(key, section, block).read(out);
  return hex(out);
}

std::string places(uint16_t first, uint16_t second) {
  std::string text;
  append_be16(text, first);
  append_be16(text, second);
  return text;
}

Secret pair_key() {
  const Bytes32 first = x25519_public(secret_of("mask key 0")), second = x25519_public(secret_of("mask key 1"));
  return hkdf(context(), x25519(secret_of("mask key 0"), second).view(),
              concat("evenkeel secagg 1 pair", places(0, 1), view_of(first), view_of(second)));
}

TEST(Crypto, TheVectorsAreOverOneContext) {
  EXPECT_EQ(hex(context()), "2c6f246f69d8426581fc598ceeaf327db092026001e09d4af7ba8845fd73e5a4");
}

TEST(Crypto, X25519AgreesWithTheVectorsFromBothEnds) {
  const Bytes32 first = x25519_public(secret_of("mask key 0")), second = x25519_public(secret_of("mask key 1"));
  EXPECT_EQ(hex(first), "719c98fc0b251c8e34d8b85570d8ab2a36052845aa7c8be378fae39a89142b3b");
  EXPECT_EQ(hex(second), "2761bb66b8d373efa796bb617f4f92678ea67a98114e28984347dac92a357573");
  const std::string shared = "cef44820df4a65cceaee89c0c582854d1c65f8bf4ca4b360e983cbb539350462";
  EXPECT_EQ(hex(x25519(secret_of("mask key 0"), second).view()), shared);
  EXPECT_EQ(hex(x25519(secret_of("mask key 1"), first).view()), shared);
}

TEST(Crypto, X25519RefusesAPublicKeyThatGivesEverybodyTheSameSecret) {
  Bytes32 one{};
  one[0] = 1;  // a point of small order
  for (const Bytes32& peer : {Bytes32{}, one}) EXPECT_THROW(x25519(secret_of("mask key 0"), peer), Error);
}

TEST(Crypto, HkdfGivesTheKeysOfTheVectors) {
  EXPECT_EQ(hex(pair_key().view()), "e129c89f2111e210f65f1d9c6e9faa38a747a57ff75c2e2caff23a809394912e");
  EXPECT_EQ(hex(hkdf(context(), secret_of("self mask 0").view(), concat("evenkeel secagg 1 self", std::string(2, '\0')))
                    .view()),
            "8e01fb49a0f0bf70ffc37ac5fb16060a03aa5f313f8f246b7faac48565b54686");
}

TEST(Crypto, HkdfGivesTheFirstBytesOfRfc5869) {
  std::string salt, info;  // test case 1
  for (int i = 0; i <= 12; ++i) salt += static_cast<char>(i);
  for (int i = 0xf0; i <= 0xf9; ++i) info += static_cast<char>(i);
  EXPECT_EQ(hex(hkdf(salt, std::string(22, '\x0b'), info).view()),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

TEST(Crypto, ExpandingAnExtractedKeyIsHkdf) {
  // The extracted key of test case 1 of RFC 5869.
  const Bytes32 extracted = {0x07, 0x77, 0x09, 0x36, 0x2c, 0x2e, 0x32, 0xdf, 0x0d, 0xdc, 0x3f,
                             0x0d, 0xc4, 0x7b, 0xba, 0x63, 0x90, 0xb6, 0xc7, 0x3b, 0xb5, 0x0f,
                             0x9c, 0x31, 0x22, 0xec, 0x84, 0x4a, 0xd7, 0xc2, 0xb3, 0xe5};
  std::string info;
  for (int i = 0xf0; i <= 0xf9; ++i) info += static_cast<char>(i);
  EXPECT_EQ(hex(hkdf_expand(Secret(extracted), info).view()),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

TEST(Crypto, ChaCha20GivesTheStreamOfTheVectorsFromAnyBlock) {
  EXPECT_EQ(stream_bytes(pair_key(), 0, 0, 32), "8b952681507687cba2e2e076c5bdb6ff9442fae38d8174bf30fb6564564f3f47");
  EXPECT_EQ(stream_bytes(pair_key(), 0, 1, 32), "49e9a8fa253bd0dcb721686f8b1f95734645b34ba2f6132376a574ecc49b4db0");
}

TEST(Crypto, ChaCha20OfPartsIsTheStreamInOnePiece) {
  const Secret key = secret_of("parts");
  std::vector<uint8_t> whole(1000), parts(1000);
  ChaCha20(key, 7, 3).read(whole);
  ChaCha20 stream(key, 7, 99);
  stream.seek(3);
  for (size_t at = 0, size = 1; at < parts.size(); at += size, size = 2 * size + 1)
    stream.read(std::span(parts).subspan(at, std::min(size, parts.size() - at)));
  EXPECT_EQ(hex(parts), hex(whole));
  EXPECT_NE(stream_bytes(key, 8, 3, 64), stream_bytes(key, 7, 3, 64));
}

TEST(Crypto, ChaCha20CountsBlocksBeyond32Bits) {
  const Secret key = secret_of("many blocks");
  constexpr uint64_t kEdge = uint64_t{1} << 32;
  EXPECT_EQ(stream_bytes(key, 1, kEdge - 1, 192).substr(128), stream_bytes(key, 1, kEdge, 128));
  EXPECT_NE(stream_bytes(key, 1, kEdge, 64), stream_bytes(key, 1, 0, 64));
  EXPECT_NE(stream_bytes(key, 1, kEdge, 64), stream_bytes(key, 2, 0, 64));
}

TEST(Crypto, ABoxIsThatOfTheVectorAndOpens) {
  const Secret shared = x25519(secret_of("share key 3"), x25519_public(secret_of("share key 1")));
  const Secret key = hkdf(context(), shared.view(), concat("evenkeel secagg 1 share", places(3, 1)));
  EXPECT_EQ(hex(key.view()), "2a9cf98f82f679b78eb2ce3840c8368cecf3c660d291e80a22409cb971781d00");
  const std::string associated = context() + places(3, 1), text(64, 'x');
  const std::string box = seal_box(key, associated, text);
  EXPECT_EQ(box.size(), 80U);
  EXPECT_EQ(open_box(key, associated, box), text);
}

TEST(Crypto, ABoxOpensUnchangedAndWithItsKeyAndContextOnly) {
  const Secret key = secret_of("box");
  const std::string box = seal_box(key, "round 3", "share");
  EXPECT_EQ(open_box(key, "round 3", box), "share");
  EXPECT_FALSE(open_box(key, "round 4", box));
  EXPECT_FALSE(open_box(secret_of("another"), "round 3", box));
  EXPECT_FALSE(open_box(key, "round 3", box.substr(1)));
  EXPECT_FALSE(open_box(key, "round 3", ""));
  for (size_t i = 0; i < box.size(); ++i) {
    std::string changed = box;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(open_box(key, "round 3", changed)) << i;
  }
}

TEST(Crypto, SecretsAreWipedAndRandom) {
  Bytes32 bytes = sha256_of("to be wiped");
  wipe(bytes);
  EXPECT_EQ(bytes, Bytes32{});
  std::string text = "to be wiped";
  wipe(text);
  EXPECT_TRUE(text.empty());
  EXPECT_FALSE(Secret::random() == Secret::random());
  alignas(Secret) std::array<unsigned char, sizeof(Secret)> place{};
  const auto* secret = new (place.data()) Secret(sha256_of("held"));
  secret->~Secret();
  EXPECT_EQ(std::count(place.begin(), place.end(), 0), static_cast<std::ptrdiff_t>(place.size()));
}

TEST(Crypto, RandomDigitsAreTwoForEachByteAndOthersEachTime) {
  const auto first = random_hex(17), second = random_hex(17);
  EXPECT_TRUE(is_hex(first, 34)) << first;
  EXPECT_NE(first, second);
}

TEST(Crypto, ASecretOfAnotherLengthIsRefused) {
  EXPECT_THROW(Secret::from("short", "the key of the vector"), Error);
  EXPECT_EQ(Secret::from(std::string(32, 'k'), "the key"), Secret::from(std::string(32, 'k'), "the key"));
}

}  // namespace
}  // namespace evenkeel::crypto
