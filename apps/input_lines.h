/// \file  Input files of commands that take one JSON value a line.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"

namespace evenkeel {

/// Calls `use` for each line that is not blank, of "-" as soon as standard input has it; errors begin with
/// "<file> line <number>". \throws kIo when the file
/// cannot be read or is longer than 1 GiB, kData when it holds no lines or one that is not JSON.
void for_each_json_line(const std::string& file, const std::function<void(const JsonView&)>& use);

}  // namespace evenkeel
