/// \file  Agrees on a secret between two key pairs with X25519 (RFC 7748). Does not depend on LibTorch.
/// Example:  const Secret shared = x25519(own, peer_public);
#pragma once

#include "crypto/secret.h"

namespace evenkeel::crypto {

/// Returns the public key of a private key. Any 32 bytes are a private key. Cost: 25 microseconds.
Bytes32 x25519_public(const Secret& secret);

/// Returns the secret that both ends of two key pairs compute. It is no key yet: pass it through hkdf().
/// \throws kData when the secret would be all zero, which happens only with a malicious public key
Secret x25519(const Secret& secret, const Bytes32& peer);

}  // namespace evenkeel::crypto
