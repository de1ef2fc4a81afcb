/// \file  Defines the values of an adapter_config.json that describe a whole adapter.
#pragma once

#include <cstdint>
#include <string>

namespace evenkeel::lora {

/// The values, with their keys in the file.
struct PeftInfo {
  std::string base_model;  ///< written as base_model_name_or_path; empty: written as null
  double alpha = 20;       ///< lora_alpha
  int64_t rank = 20;       ///< r
};

}  // namespace evenkeel::lora
