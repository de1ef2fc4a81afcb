/// \file  Provides what both PEFT layouts share: tensor names, the adapter_config.json of plain LoRA, and writing a
/// folder.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/plain/json.h"
#include "lora/adapter.h"
#include "lora/peft_config.h"
#include "lora/peft_info.h"

namespace evenkeel::lora::peft {

inline constexpr std::string_view kPrefix = "base_model.model.";
inline constexpr std::string_view kA = ".lora_A.weight";
inline constexpr std::string_view kB = ".lora_B.weight";

/// Checks that every site has the rank and scaling of `info` and no core. \throws kInternal.
void require_one_scaling(const AdapterState& adapters, const PeftInfo& info);

/// Returns all keys of plain LoRA except those that name the adapted modules; the caller adds those.
OrderedJson adapter_config(const PeftInfo& info);

/// Removes a tensor from `left` and returns it as float32. \throws kCheckpoint when it is missing or has another shape.
at::Tensor take_factor(TensorMap& left, const std::string& name, at::IntArrayRef sizes, const std::string& file);

/// Removes the experts of the fused layout from `left` and splits each parameter into its linears. If B is
/// block-diagonal, each linear gets its own rank. Otherwise each linear gets all of A and its rows of B, which is exact
/// too. A linear with only zeros in B is then left out, unless B is zero for all linears.
AdapterState take_fused(TensorMap& left, const Sites& sites, const AdapterConfig& config, const std::string& file);

/// Writes the two files of an adapter into a folder, which is created if missing. The tensors are written first, so a
/// folder with a config is complete. \throws kIo.
void write_folder(const std::filesystem::path& folder, const TensorMap& tensors, const OrderedJson& config);
/// Works as the other write_folder(), but creates one tensor at a time (stream_safetensors()).
void write_folder(const std::filesystem::path& folder, const TensorMap& shapes, const TensorMaker& make,
                  const OrderedJson& config);

}  // namespace evenkeel::lora::peft
