/// \file  Adapters as llama.cpp reads them: one GGUF file with <tensor>.lora_a [*, r, in] and <tensor>.lora_b
/// [*, out, r] for each tensor of the base that is adapted, experts in one stack of all E. Which tensor a site stands
/// beside, its family says (Site::gguf). Source: llama.cpp's convert_lora_to_gguf.py and llama-adapter.cpp.
#pragma once

#include <filesystem>
#include <string>

#include "lora/adapter.h"

namespace evenkeel {

/// llama.cpp adds alpha / r B A, one alpha for the file and r of each tensor. Sites that share scaling * r have it as
/// alpha, and their factors as they are; another site's scaling is multiplied into its B. Any sites will do, of any
/// ranks. REQUIRES no core, and rank and scaling other than 0 (\throws kInternal).
/// \param architecture  of the base's GGUF: "olmoe"
/// \throws kConfig naming a site that llama.cpp has no tensor for.
void save_gguf_adapter(const std::filesystem::path& file, const AdapterState& adapters, const Sites& sites,
                       const std::string& architecture);

}  // namespace evenkeel
