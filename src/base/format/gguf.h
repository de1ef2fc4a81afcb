/// \file  Writes the GGUF format of llama.cpp, version 3, limited to keys with text and float values and to float32
/// tensors. Numbers are little-endian; tensors begin at multiples of 32 bytes.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/format/safetensors.h"

namespace evenkeel {

/// Metadata keys and their values, in file order.
using GgufKeys = std::vector<std::pair<std::string, std::variant<std::string, float>>>;

/// Writes a file atomically, with the tensors sorted by name. A tensor that is not on the CPU or not contiguous is
/// copied when it is written, one at a time. The file lists the sizes of a tensor in reverse order: [E, r, in] is {in,
/// r, E}. The same content gives the same bytes. \throws kInternal if a tensor is not float32; kIo.
void save_gguf(const std::filesystem::path& file, const GgufKeys& keys, const TensorMap& tensors);

}  // namespace evenkeel
