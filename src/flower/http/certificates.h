/// \file  Checks X.509 certificates of TLS: the client's check of a server's address, and the texts for users.
#pragma once

#include <openssl/ssl.h>

#include <filesystem>
#include <string>

namespace evenkeel::flower {

/// Makes the connections of `context` verify that the server's certificate is for `host`, a name or an IP address. The
/// subject's common name counts only in a certificate without subject alternative names (RFC 6125, 6.4.4). The outcome
/// is the connection's verify result (SSL_get_verify_result).
/// \throws kConfig if `host` is neither
void require_host(SSL_CTX* context, const std::string& host);

/// Checks that a file holds certificates of authorities in PEM. \throws kConfig if it holds none
void check_authority(const std::filesystem::path& file);

/// Returns the reason why a server's certificate was refused. \param result  X509_V_ERR_...
std::string refusal_of_certificate(long result);

/// Returns why clients refuse `certificate` today: "has expired" or "is not valid yet"; "" if they accept its dates.
std::string fault_of_dates(const X509* certificate);

}  // namespace evenkeel::flower
