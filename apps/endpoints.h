/// \file  HOST:PORT on the command line.
#pragma once

#include <string>
#include <string_view>

#include "flower/node/node_link.h"

namespace evenkeel {

/// "host:8000", "10.0.0.1:8000", "[::1]:8000". \param least  0 where any free port will do. \throws kConfig naming
/// `flag`
wire::Endpoint endpoint_of(std::string_view text, std::string_view flag, int least = 1);

}  // namespace evenkeel
