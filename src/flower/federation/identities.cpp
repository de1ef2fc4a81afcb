#include "flower/federation/identities.h"

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel::flower {
namespace {

constexpr std::string_view kBeginOfKey = "-----BEGIN PUBLIC KEY-----", kEndOfKey = "-----END PUBLIC KEY-----";
constexpr size_t kLongestPeers = size_t{1} << 20;

std::set<std::string> peers_in_pem(std::string_view text, const std::string& place) {
  std::set<std::string> peers;
  for (size_t at = text.find(kBeginOfKey); at != text.npos; at = text.find(kBeginOfKey, at + 1)) {
    const auto end = text.find(kEndOfKey, at);
    EK_CHECK(end != text.npos, kConfig, place, ": a public key without its end");
    peers.insert(PublicKey::from_pem(text.substr(at, end + kEndOfKey.size() - at), place).fingerprint());
  }
  EK_CHECK(!peers.empty(), kConfig, place, " holds no public key in PEM");
  return peers;
}

}  // namespace

std::string Identities::add(std::string_view pem) {
  const auto key = PublicKey::from_pem(pem, "the key of a member");
  auto fingerprint = key.fingerprint();
  keys_.emplace(fingerprint, key);
  return fingerprint;
}

bool Identities::verify(const std::string& fingerprint, std::string_view text, std::string_view signature) const {
  const auto key = keys_.find(fingerprint);
  return key != keys_.end() && key->second.signed_by(text, signature);
}

secure::Verify Identities::verifier() const {
  return [this](const std::string& fingerprint, std::string_view text, std::string_view signature) {
    return verify(fingerprint, text, signature);
  };
}

std::vector<std::string> Identities::pems() const {
  std::vector<std::string> pems;
  for (const auto& [fingerprint, key] : keys_) pems.push_back(key.pem());
  return pems;
}

std::set<std::string> read_peers(const fs::path& file) {
  const auto text = read_file(file, kLongestPeers);
  if (text.find("-----BEGIN") != text.npos) return peers_in_pem(text, file.string());
  std::set<std::string> peers;
  for (const auto& peer : parse_allow_list(text, file.string())) peers.insert(peer.key.fingerprint());
  return peers;
}

}  // namespace evenkeel::flower
