/// \file  Parses HOST:PORT on the command line.
#pragma once

#include <string>
#include <string_view>

#include "flower/node/node_link.h"

namespace evenkeel::apps {

/// Parses an address as parse_address() does (base/plain/address.h).
/// \param flag   name of the flag, for the error message
/// \param least  lowest port allowed; 0 if any free port will do
/// \throws kConfig naming `flag`
flower::Endpoint endpoint_of(std::string_view text, std::string_view flag, int least = 1);

}  // namespace evenkeel::apps
