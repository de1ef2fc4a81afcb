/// \file  Holds the public keys of the members of a masked round. A key comes with a message, in PEM; the terms of the
/// round name it by its fingerprint.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flower/format/keys.h"
#include "secure/round_messages.h"

namespace evenkeel::flower {

/// Public keys by fingerprint. Threads: one.
class Identities {
 public:
  /// Adds a public key in PEM. \return its fingerprint \throws kData for anything else
  std::string add(std::string_view pem);
  /// Returns true if the key with this fingerprint was added and signed `text`.
  bool verify(const std::string& fingerprint, std::string_view text, std::string_view signature) const;
  /// Returns verify() as a function; it borrows this object.
  secure::Verify verifier() const;
  std::vector<std::string> pems() const;  ///< all keys

 private:
  std::map<std::string, PublicKey> keys_;
};

/// Reads the public keys of a node's peers: PEM blocks one after another, or a list as `serve --allow` takes it.
/// \return their fingerprints \throws kConfig, kData naming the file, when it has another content or no key
std::set<std::string> read_peers(const std::filesystem::path& file);

}  // namespace evenkeel::flower
