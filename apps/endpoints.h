/// \file  Parses the addresses of servers on the command line.
#pragma once

#include <string>
#include <string_view>

#include "base/plain/address.h"
#include "flower/node/node_link.h"

namespace evenkeel::apps {

/// How a server is reached, as the flags of a command say it.
struct ServerFlags {
  std::string server;     ///< HOST:PORT, also with the scheme that the server prints
  std::string ca;         ///< PEM file of the authority that signed its certificate; empty: none given
  bool insecure = false;  ///< without TLS
};

/// Returns the server of `flags`.
/// \param flag  name of the flag that has the address, for messages
/// \throws kConfig for an invalid address (parse_server_address() in base/plain/address.h), unless one of --ca and
/// --insecure is given, and for a scheme that contradicts them
flower::Endpoint server_of(const ServerFlags& flags, std::string_view flag);

/// Checks that the scheme of an address, if it has one, agrees with the other flags.
/// \param text      the address as it was given
/// \param tls       true if the other flags ask for TLS
/// \param with_tls  the flags that ask for TLS, for the message
/// \throws kConfig naming `flag`
void check_scheme(const Address& address, std::string_view text, std::string_view flag, bool tls,
                  std::string_view with_tls);

}  // namespace evenkeel::apps
