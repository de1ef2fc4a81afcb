#include "flower/format/openssh_private.h"

#include <algorithm>

#include "base/plain/base64.h"
#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

constexpr std::string_view kFirstLine = "-----BEGIN OPENSSH PRIVATE KEY-----",
                           kLastLine = "-----END OPENSSH PRIVATE KEY-----";
constexpr std::string_view kOpensshMagic{"openssh-key-v1\0", 15};
constexpr size_t kLineLength = 70;  // characters of Base64, as ssh-keygen writes
constexpr size_t kPadding = 8;      // the private part is padded to a multiple of it
constexpr std::string_view kEcdsa = "ecdsa-sha2-";

void put_number(std::string& blob, uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) blob.push_back(static_cast<char>(number >> shift & 0xFF));
}

std::optional<uint32_t> take_number(std::string_view& blob) {
  if (blob.size() < 4) return {};
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<unsigned char>(blob[i]);
  blob.remove_prefix(4);
  return number;
}

/// Returns a positive number as the protocol's mpint: no leading zeros but the one that keeps the sign bit free.
std::string as_mpint(std::string_view number) {
  const size_t first = std::min(number.find_first_not_of('\0'), number.size());
  number.remove_prefix(first);
  const bool is_signed = !number.empty() && (static_cast<unsigned char>(number[0]) & 0x80) != 0;
  return std::string(is_signed ? 1 : 0, '\0').append(number);
}

std::string private_part(const EcNumbers& key, std::string_view comment, uint32_t check) {
  std::string part;
  put_number(part, check);
  put_number(part, check);
  for (const auto& text : {concat(kEcdsa, key.curve), key.curve, key.point, as_mpint(key.scalar)})
    put_ssh_string(part, text);
  put_ssh_string(part, comment);
  for (char padding = 1; part.size() % kPadding != 0; ++padding) part.push_back(padding);
  return part;
}

std::string public_part(const EcNumbers& key) {
  std::string part;
  for (const auto& text : {concat(kEcdsa, key.curve), key.curve, key.point}) put_ssh_string(part, text);
  return part;
}

/// Returns true for the bytes 1, 2, 3 ... that fill the private part. Some programs add a whole block of them.
bool is_padding(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i)
    if (static_cast<size_t>(text[i]) != i + 1) return false;
  return text.size() <= kPadding;
}

/// Returns the decoded bytes between the first and the last line.
std::optional<std::string> bytes_of(std::string_view text) {
  const size_t begin = text.find(kFirstLine), end = text.find(kLastLine);
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  std::string base64(text.substr(begin + kFirstLine.size(), end - begin - kFirstLine.size()));
  std::erase_if(base64, [](char c) { return c == '\n' || c == '\r'; });
  return from_base64(base64);
}

}  // namespace

void put_ssh_string(std::string& blob, std::string_view text) {
  put_number(blob, static_cast<uint32_t>(text.size()));
  blob.append(text);
}

std::optional<std::string_view> take_ssh_string(std::string_view& blob) {
  std::string_view rest = blob;
  const auto length = take_number(rest);
  if (!length || *length > rest.size()) return {};
  blob = rest.substr(*length);
  return rest.substr(0, *length);
}

std::string openssh_private_text(const EcNumbers& key, std::string_view comment, uint32_t check) {
  std::string blob(kOpensshMagic);
  for (const std::string_view text : {"none", "none", ""}) put_ssh_string(blob, text);  // cipher, its key, its options
  put_number(blob, 1);
  put_ssh_string(blob, public_part(key));
  put_ssh_string(blob, private_part(key, comment, check));
  const std::string base64 = to_base64(blob);
  std::string text = concat(kFirstLine, "\n");
  for (size_t at = 0; at < base64.size(); at += kLineLength) text += base64.substr(at, kLineLength) + "\n";
  return concat(text, kLastLine, "\n");
}

bool is_openssh_private(std::string_view text) { return text.find(kFirstLine) != std::string_view::npos; }

EcNumbers parse_openssh_private(std::string_view text, std::string_view place) {
  const auto bytes = bytes_of(text);
  const auto damaged = [&](bool is_good) {
    EK_CHECK(is_good, kConfig, place, " is a damaged private key in OpenSSH's format");
  };
  damaged(bytes && std::string_view(*bytes).starts_with(kOpensshMagic));
  std::string_view rest = std::string_view(*bytes).substr(kOpensshMagic.size());
  const auto cipher = take_ssh_string(rest), kdf = take_ssh_string(rest), options = take_ssh_string(rest);
  const auto count = take_number(rest);
  damaged(cipher && kdf && options && count == 1u);
  EK_CHECK(*cipher == "none", kConfig, place, " has a passphrase; run: ssh-keygen -p -N '' -f ", place);
  damaged(*kdf == "none" && options->empty());
  const auto public_bytes = take_ssh_string(rest), private_bytes = take_ssh_string(rest);
  damaged(public_bytes && private_bytes && rest.empty());
  std::string_view part = *private_bytes;
  const auto check = take_number(part), again = take_number(part);
  const auto kind = take_ssh_string(part);
  damaged(check && check == again && kind);
  EK_CHECK(kind->starts_with(kEcdsa), kConfig, place, " is a key of kind ", shown(*kind),
           ", allowed: EC on P-384 or P-256");
  const auto curve = take_ssh_string(part), point = take_ssh_string(part), scalar = take_ssh_string(part);
  const auto comment = take_ssh_string(part);
  damaged(curve && point && scalar && comment && *kind == concat(kEcdsa, *curve) && is_padding(part));
  EcNumbers key{.curve = std::string(*curve), .point = std::string(*point), .scalar = std::string(*scalar)};
  damaged(*public_bytes == public_part(key));
  return key;
}

}  // namespace evenkeel::flower
