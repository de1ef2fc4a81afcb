/// \file  Computes the SHA-256 of bytes that arrive in pieces. Does not depend on LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace evenkeel {

/// Computes one SHA-256.
/// Example:  Sha256 digest;  digest.update(head);  digest.update(body);  digest.hex();
class Sha256 {
 public:
  Sha256();
  /// Appends bytes to the data to hash.
  void update(std::string_view bytes);
  /// Returns the digest. The object must not be used afterwards.
  std::array<uint8_t, 32> bytes();
  /// Returns the digest as 64 hex digits. The object must not be used afterwards.
  std::string hex();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

}  // namespace evenkeel
