/// \file  Defines the values of the config key `model.engine`: an engine, or the default engine of the device.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/format/config_table.h"
#include "nn/compute/compute.h"

namespace evenkeel::nn {

/// A value of `model.engine`.
enum class EngineChoice : uint8_t {
  kAuto,     ///< kKernels on a processor, kAten on a GPU
  kKernels,  ///< EngineKind::kKernels
  kAten,     ///< EngineKind::kAten
};
constexpr auto names(EngineChoice) {
  return std::array{config::EnumName<EngineChoice>{"auto", EngineChoice::kAuto},
                    config::EnumName<EngineChoice>{"kernels", EngineChoice::kKernels},
                    config::EnumName<EngineChoice>{"aten", EngineChoice::kAten}};
}

/// Checks that the engine supports a device. \param device  a device name of a config ("auto" fits every engine)
/// \param place  " (file, line)" of the key, for the message
/// \throws kConfig for the kernels on a GPU
void check_engine(EngineChoice engine, std::string_view device, std::string_view place);

/// Returns the engine to use on a device. REQUIRES a device that is not "auto"
EngineKind engine_on(EngineChoice engine, std::string_view device);

}  // namespace evenkeel::nn
