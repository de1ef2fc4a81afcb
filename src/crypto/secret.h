/// \file  Holds 32 bytes that nobody else may learn, and wipes them. Does not depend on LibTorch.
/// Example:  const Secret key = Secret::random();
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel::crypto {

/// 32 public bytes: a public key, a digest, a commitment.
using Bytes32 = std::array<uint8_t, 32>;

/// Overwrites bytes with zeros. The compiler does not remove the writes.
void wipe(std::span<uint8_t> bytes);
void wipe(std::string& bytes);  ///< also empties the string

/// Fills `bytes` from the generator that OpenSSL keeps for private values. \throws kIo when it gives no bytes
void random_bytes(std::span<uint8_t> bytes);

/// Returns `bytes` bytes of random_bytes() as twice as many hexadecimal digits, for salts and names that nobody may
/// guess. \throws kIo as random_bytes()
std::string random_hex(size_t bytes);

/// A key or another secret of 32 bytes. The destructor wipes the bytes.
class Secret {
 public:
  Secret() = default;  ///< 32 zero bytes
  explicit Secret(const Bytes32& bytes) : bytes_(bytes) {}
  /// Reads a secret from a file or a message. \throws kData, naming `place`, unless `bytes` has 32 bytes
  static Secret from(std::string_view bytes, std::string_view place);
  static Secret random();  ///< \throws kIo as random_bytes()
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret() { wipe(bytes_); }

  std::span<const uint8_t, 32> bytes() const { return bytes_; }
  std::span<uint8_t, 32> bytes() { return bytes_; }
  /// The bytes as text, for messages and files. It lives as long as the secret.
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  /// Compares in a time that does not depend on the bytes.
  bool operator==(const Secret& other) const;

 private:
  Bytes32 bytes_{};
};

/// Views bytes as text.
inline std::string_view view_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
/// Views text as bytes.
inline std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace evenkeel::crypto
