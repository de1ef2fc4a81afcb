/// \file  How products with a frozen weight are made. An argument all the way down from ForwardOptions: two models, or
/// two clients, of one process may differ.
#pragma once

#include <array>

#include "base/config.h"

namespace evenkeel {

/// How a 16-bit weight meets wider activations. Weights stored in the activations' own type are used as they are. The
/// choice changes rounding.
enum class MatmulPath {
  kWiden,   ///< weight panels are widened to float32; exact products of the stored values
  kNative,  ///< activations are rounded to bfloat16 and the library's bfloat16 product is used; bfloat16 weights only
};
constexpr auto names(MatmulPath) {
  return std::array{config::EnumName<MatmulPath>{"widen", MatmulPath::kWiden},
                    config::EnumName<MatmulPath>{"native", MatmulPath::kNative}};
}

}  // namespace evenkeel
