/// \file  Who computes, and how: a value that goes down with every forward call from ForwardOptions, so two models, or
/// two clients, of one process may differ.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

#include "base/format/config_table.h"
#include "nn/compute/matmul_table.h"

namespace evenkeel {

enum class Engine : uint8_t {
  kKernels,  ///< the kernels of this program (nn/kernels), on processors
  kAten,     ///< LibTorch's operators (nn/aten), on any device
};
constexpr auto names(Engine) {
  return std::array{config::EnumName<Engine>{"kernels", Engine::kKernels},
                    config::EnumName<Engine>{"aten", Engine::kAten}};
}

struct Compute {
  Engine engine = Engine::kKernels;
  ProductTable products{};  ///< kKernels: which of them multiplies with a frozen weight
  /// kAten: what the products inside blocks are made in, kBFloat16 or, for the activations' own type, kFloat. What is
  /// between blocks, routers and sums of losses are float32 with either.
  c10::ScalarType inner = c10::ScalarType::Float;
  bool operator==(const Compute&) const = default;
};

}  // namespace evenkeel
