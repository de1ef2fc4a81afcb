/// \file  The GGUF format of llama.cpp, version 3, as far as it is written here: keys of text and numbers, float32
/// tensors. Little-endian; tensors begin at multiples of 32 bytes.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/format/safetensors.h"

namespace evenkeel {

using GgufKeys = std::vector<std::pair<std::string, std::variant<std::string, float>>>;

/// Writes atomically, tensors by name and one after the other. Sizes stand in the file from the fastest dimension on:
/// [E, r, in] as {in, r, E}. Deterministic: same content, same bytes. REQUIRES float32 tensors (\throws kInternal).
void save_gguf(const std::filesystem::path& file, const GgufKeys& keys, const TensorMap& tensors);

}  // namespace evenkeel
