/// \file  Reads and writes private EC keys in OpenSSH's format without a passphrase ("openssh-key-v1", PROTOCOL.key of
/// OpenSSH), which Flower's SuperNode and ssh-keygen read. It handles bytes and knows no cryptography.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace evenkeel::flower {

/// The numbers of a private EC key.
struct EcNumbers {
  std::string curve{};   ///< OpenSSH's name, e.g. "nistp384"
  std::string point{};   ///< uncompressed public point, 04 X Y
  std::string scalar{};  ///< private number, big-endian
};

/// Returns the text of a private key file.
/// \param comment  kept in the file, shown by ssh-keygen
/// \param check    any number; it is stored twice, so that a reader notices a wrong passphrase
std::string openssh_private_text(const EcNumbers& key, std::string_view comment, uint32_t check);

/// Returns true if `text` says that it is such a file.
bool is_openssh_private(std::string_view text);

/// Reads such a file. The numbers are not checked against each other.
/// \param place  the file, for error messages
/// \throws kConfig for a damaged file, a key of another kind, and a key with a passphrase (with the command that
/// removes it)
EcNumbers parse_openssh_private(std::string_view text, std::string_view place);

/// Appends a string of the SSH protocol: four bytes of length, then the text.
void put_ssh_string(std::string& blob, std::string_view text);
/// Takes such a string from the front; returns nothing if there is none.
std::optional<std::string_view> take_ssh_string(std::string_view& blob);

}  // namespace evenkeel::flower
