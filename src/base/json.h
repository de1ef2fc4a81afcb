/// \file  nlohmann::json under a short name, and parsing whose errors name the file. For foreign JSON and
/// machine-written records; configuration is TOML (base/config.h).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"

namespace evenkeel {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

/// Parses `text`. \throws `kind` with `origin` and the byte at which the text went wrong.
Json parse_json(std::string_view text, std::string_view origin, ErrorKind kind = kData);

/// Reads and parses a file.
Json load_json(const std::filesystem::path& file, ErrorKind kind = kData);

}  // namespace evenkeel
