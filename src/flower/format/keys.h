/// \file  Handles the keys that identify nodes: EC keys on NIST P-384 (P-256 is accepted), OpenSSH allow-lists, and the
/// headers that sign calls.
/// Example:  make_key("node.pem");  // PKCS#8, mode 0600; fails if the file exists
///           keys_txt << openssh_line(Key::load("node.pem").public_key(), "site-one") << '\n';
///           const auto allowed = read_allow_list("keys.txt");
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

namespace evenkeel::flower {

/// A public key. Keys with the same point are equal, whatever format they were read from.
class PublicKey {
 public:
  /// Reads a SubjectPublicKeyInfo in PEM.
  /// \param place  the source, for error messages
  /// \throws kData unless it is a key on P-256 or P-384
  static PublicKey from_pem(std::string_view pem, std::string_view place);
  /// Reads the decoded base64 part of an OpenSSH line. \throws kData as above
  static PublicKey from_openssh(std::string_view blob, std::string_view place);

  std::string pem() const;  ///< PEM of the SubjectPublicKeyInfo
  const std::string& openssh_blob() const {
    return blob_;
  }  ///< the bytes of the OpenSSH format; evenkeel's files identify keys by them
  /// Returns "SHA256:...", as `ssh-keygen -l` prints it.
  std::string fingerprint() const;
  /// Returns true if `signature` (ECDSA over SHA-256, DER) is this key's signature of `text`. Cost: 0.7 ms for P-384.
  bool signed_by(std::string_view text, std::string_view signature) const;
  bool operator==(const PublicKey& other) const { return blob_ == other.blob_; }

 private:
  explicit PublicKey(std::shared_ptr<void> key);
  std::shared_ptr<void> key_;  // EVP_PKEY
  std::string blob_;
  friend class Key;
};

/// Formats of a private key's file.
enum class KeyFormat {
  kPkcs8,    ///< PKCS#8 in PEM, as OpenSSL writes
  kOpenssh,  ///< OpenSSH's, which `flower-supernode` reads
};

/// A private key.
class Key {
 public:
  /// Generates a key on P-384.
  static Key make();
  /// Reads a key in either format, without a password. \throws kConfig for any other file (the message for an OpenSSH
  /// file with a passphrase has the command that removes it), and when others than the owner may read it
  static Key load(const std::filesystem::path& file);
  /// Writes the key with mode 0600. \throws kIo when the file exists or cannot be written
  /// \param comment  the name that OpenSSH's format keeps; PKCS#8 has none
  void save(const std::filesystem::path& file, KeyFormat format, std::string_view comment) const;

  PublicKey public_key() const;
  std::string sign(std::string_view text) const;  ///< ECDSA over SHA-256, DER. 0.8 ms for P-384.

 private:
  explicit Key(std::shared_ptr<void> key) : key_(std::move(key)) {}
  std::shared_ptr<void> key_;  // EVP_PKEY
};

/// Generates a key and saves it to a new file.
Key make_key(const std::filesystem::path& file, KeyFormat format = KeyFormat::kPkcs8, std::string_view comment = "");

/// Checks the name of a key. \throws kConfig unless it is one line of printable text
void check_key_name(std::string_view comment);

/// Returns "ecdsa-sha2-nistp384 AAAA... comment", the line for allow-lists of evenkeel and of `flwr supernode
/// register`. \throws kConfig as check_key_name()
std::string openssh_line(const PublicKey& key, std::string_view comment);

/// Begins the last word of a line in an allow-list, if the line's key replaces another key. The fingerprint of the
/// replaced key follows.
inline constexpr std::string_view kReplaces = "replaces=";

/// A key that may join, and the name of its node.
struct AllowedKey {
  PublicKey key;
  std::string name;
  std::string replaces{};  ///< fingerprint of the key whose client this key takes over; empty: none

  bool operator==(const AllowedKey&) const = default;
};
/// Reads a list of OpenSSH public keys, one per line. The comment of a line is the node's name, without kReplaces;
/// without a comment, the name is the fingerprint. Blank lines and lines that begin with # are ignored. \throws kConfig
/// naming file and line for an invalid line, an unsupported key, a repeated key or name, a replaced key that is in the
/// list or that two lines replace, and for an empty list
std::vector<AllowedKey> read_allow_list(const std::filesystem::path& file);
std::vector<AllowedKey> parse_allow_list(std::string_view text, std::string_view place);

/// Returns the current time in seconds since 1970.
double now_seconds();

/// The HTTP headers that sign a call.
struct SignedHeaders {
  std::string public_key;  ///< flwr-public-key: base64 of the PEM
  std::string timestamp;   ///< flwr-timestamp: ISO 8601 with microseconds and offset
  std::string signature;   ///< flwr-signature: base64 of the signature over the timestamp
  /// kInstanceHeader: a random name of the calling process, not signed; empty: the caller sends none.
  std::string instance{};
};
/// The header with which evenkeel's nodes tell processes with one key apart. Flower's SuperLink ignores it.
inline constexpr std::string_view kInstanceHeader = "evenkeel-instance";
/// Signs calls. A signature is reused for one minute, because it covers only the time. Each object is an instance of
/// its own. Any thread may call.
class Signer {
 public:
  explicit Signer(Key key);
  SignedHeaders headers(double now = now_seconds());
  PublicKey public_key() const { return key_.public_key(); }

 private:
  Key key_;
  std::string public_key_, instance_;
  std::mutex mutex_;
  SignedHeaders last_{};
  double signed_at_ = -1e18;
};

/// Parses an ISO 8601 time with an offset into seconds since 1970; returns nothing if `text` is invalid.
std::optional<double> parse_timestamp(std::string_view text);
std::string format_timestamp(double seconds);

/// Verifies signed headers: the signature must be the key's signature of the timestamp, and the timestamp's age between
/// -5 s and 305 s. Verified headers are cached while they are valid, in bounded memory. Captured headers can be
/// replayed within this window, as in Flower; TLS prevents the capture. Any thread may call.
class Verifier {
 public:
  struct Verdict {
    std::optional<PublicKey> key;  ///< the key, if the headers are valid
    std::string refusal{};         ///< otherwise the reason
  };
  /// Verifies headers at time `now`.
  /// \param wanted  returns true for keys that may call; it is called before the signature is verified, so that unknown
  /// keys cost little
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

}  // namespace evenkeel::flower
