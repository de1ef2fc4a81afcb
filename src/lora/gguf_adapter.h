/// \file  Writes adapters for llama.cpp: one GGUF file with <tensor>.lora_a [*, r, in] and <tensor>.lora_b [*, out, r]
/// for each adapted tensor of the base. Experts are one stack of all E. Site::gguf gives the tensor of a site. Source:
/// llama.cpp's convert_lora_to_gguf.py and llama-adapter.cpp.
#pragma once

#include <filesystem>
#include <string>

#include "lora/adapter.h"

namespace evenkeel::lora {

/// Writes the file atomically. llama.cpp adds alpha / r B A, with one alpha per file and the rank r of each tensor.
/// Sites with a rank or scaling of 0 are left out. alpha is scaling * r of the first of the others. If scaling * r of
/// another site differs, the ratio is multiplied into its B; so ranks and scalings may differ. \throws kInternal
/// without a site and for a core.
/// \param architecture  the architecture name of the base's GGUF, e.g. "olmoe"
/// \throws kConfig naming a site for which llama.cpp has no tensor, and when all sites are left out; kNumeric naming a
/// tensor, or alpha, that float32 does not hold.
void save_gguf_adapter(const std::filesystem::path& file, const AdapterState& adapters, const Sites& sites,
                       const std::string& architecture);

}  // namespace evenkeel::lora
