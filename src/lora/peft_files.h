/// \file  What both PEFT layouts share: names, the adapter_config.json of plain LoRA, and writing a folder.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "lora/peft.h"

namespace evenkeel::peft {

inline constexpr std::string_view kPrefix = "base_model.model.";
inline constexpr std::string_view kA = ".lora_A.weight";
inline constexpr std::string_view kB = ".lora_B.weight";

/// \throws kInternal unless every site has rank and scaling of `info` and no core.
void require_one_scaling(const AdapterState& adapters, const PeftInfo& info);

/// Every key of plain LoRA; the caller adds what is adapted.
OrderedJson adapter_config(const PeftInfo& info);

/// Makes the folder when it is missing; tensors first, so that a folder with a config is complete.
void write_folder(const std::filesystem::path& folder, const TensorMap& tensors, const OrderedJson& config);

}  // namespace evenkeel::peft
