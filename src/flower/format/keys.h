/// \file  Who a node is: a key on NIST P-384 (P-256 is accepted), the line by which an operator allows it, and the
/// headers that it signs its calls with. Example:
///   make_key("node.pem");                                     // PKCS#8, mode 0600, never over a file that is there
///   std::cout << openssh_line(Key::load("node.pem").public_key(), "site-one") << "\n";   // for keys.txt
///   const auto allowed = read_allow_list("keys.txt");
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::wire {

/// A public key. Two of one point are equal, however they were written.
class PublicKey {
 public:
  /// \param place  whose it is, for errors. \throws kData when it is no SubjectPublicKeyInfo of P-256 or P-384 in PEM.
  static PublicKey from_pem(std::string_view pem, std::string_view place);
  /// \param blob  what stands in base64 in an OpenSSH line
  static PublicKey from_openssh(std::string_view blob, std::string_view place);

  std::string pem() const;                                   ///< SubjectPublicKeyInfo
  const std::string& openssh_blob() const { return blob_; }  ///< names the key in files of ours too
  /// "SHA256:..." as ssh-keygen -l shows it.
  std::string fingerprint() const;
  /// Whether `signature` (ECDSA over SHA-256, DER) is this key's over `text`. 0.7 ms for P-384.
  bool signed_by(std::string_view text, std::string_view signature) const;
  bool operator==(const PublicKey& other) const { return blob_ == other.blob_; }

 private:
  explicit PublicKey(std::shared_ptr<void> key);
  std::shared_ptr<void> key_;  // EVP_PKEY
  std::string blob_;
  friend class Key;
};

/// A private key.
class Key {
 public:
  /// On P-384.
  static Key make();
  /// \throws kConfig when the file is no EC key in PKCS#8 PEM; of one that ssh-keygen wrote, the command that
  /// converts it; kConfig when others than its owner may read it.
  static Key load(const std::filesystem::path& file);
  /// Mode 0600. \throws kIo when the file exists already, or cannot be written.
  void save(const std::filesystem::path& file) const;

  PublicKey public_key() const;
  std::string sign(std::string_view text) const;  ///< ECDSA over SHA-256, DER. 0.8 ms for P-384.

 private:
  explicit Key(std::shared_ptr<void> key) : key_(std::move(key)) {}
  std::shared_ptr<void> key_;  // EVP_PKEY
};

/// Key::make() into a new file.
Key make_key(const std::filesystem::path& file);

/// "ecdsa-sha2-nistp384 AAAA... comment": what allow-lists hold, ours and `flwr supernode register`'s.
/// \throws kConfig for a comment that is not one line of printable text.
std::string openssh_line(const PublicKey& key, std::string_view comment);

/// One key that may join, and how its node is called.
struct AllowedKey {
  PublicKey key;
  std::string name;
};
/// OpenSSH public key lines, the comment being the name (without one, the fingerprint is); blank lines and lines that
/// begin with # count for nothing. \throws kConfig naming file and line for a line that is none, a key or a name that
/// stands twice, another kind of key, or a list without any.
std::vector<AllowedKey> read_allow_list(const std::filesystem::path& file);
std::vector<AllowedKey> parse_allow_list(std::string_view text, std::string_view place);

/// Seconds since 1970, as messages and signatures say the time.
double now_seconds();

/// The headers that a call is signed with.
struct SignedHeaders {
  std::string public_key;  ///< flwr-public-key: base64 of the PEM
  std::string timestamp;   ///< flwr-timestamp: ISO 8601 with microseconds and offset
  std::string signature;   ///< flwr-signature: base64 of the signature over the timestamp
};
/// Signs, and uses a signature for a minute: it covers nothing but the time. Any thread.
class Signer {
 public:
  explicit Signer(Key key);
  SignedHeaders headers(double now = now_seconds());
  PublicKey public_key() const { return key_.public_key(); }

 private:
  Key key_;
  std::string public_key_;
  std::mutex mutex_;
  SignedHeaders last_{};
  double signed_at_ = -1e18;
};

/// Seconds since 1970 of an ISO 8601 time with an offset; nothing when `text` is none.
std::optional<double> parse_timestamp(std::string_view text);
std::string format_timestamp(double seconds);

/// Checks signed headers: the signature is the key's over the timestamp, and -5 s < age < 305 s. What was checked once
/// is remembered while it is valid, in bounded memory. A captured set of headers can be used again inside the window,
/// as in Flower: that is what TLS is for. Any thread.
class Verifier {
 public:
  struct Verdict {
    std::optional<PublicKey> key;  ///< set when all is well
    std::string refusal{};         ///< else why not
  };
  /// \param wanted  asked before the signature is checked, which is what costs: a stranger's key costs little
  Verdict check(const SignedHeaders& headers, const std::function<bool(const PublicKey&)>& wanted,
                double now = now_seconds());

 private:
  struct Known {
    PublicKey key;
    double time;
  };
  std::mutex mutex_;
  std::map<std::string, Known> known_;  // by all three headers
};

}  // namespace evenkeel::wire
