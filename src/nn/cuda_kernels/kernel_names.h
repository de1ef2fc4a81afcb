/// \file  Names the groups of CUDA kernels, each of which replaces a sequence of LibTorch's operators
/// (docs/decisions/0108-cuda-kernels.md).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel::nn::cuda {

/// A group of CUDA kernels.
enum class Kernel : uint8_t {
  kSwiglu,   ///< SwiGLU of experts with the LoRA term, and its gradients with the routing weight
  kNorm,     ///< RMSNorm of heads and of the residual stream, with rotary positions
  kRows,     ///< gathers of rows, and weighted sums of gathered rows
  kRouting,  ///< selection of experts, and sorting of token-choices by expert
};
constexpr std::array<std::string_view, 4> kKernelNames{"swiglu", "norm", "rows", "routing"};

/// A set of groups.
class KernelSet {
 public:
  constexpr KernelSet() = default;
  static constexpr KernelSet all() { return KernelSet((1u << kKernelNames.size()) - 1); }
  /// Reads "all", "none", or names of kKernelNames with commas between them. \param key, place  the setting and where
  /// it stands, for the message \throws kConfig for an unknown or repeated name
  static KernelSet read(std::string_view text, std::string_view key, std::string_view place = "");

  constexpr bool has(Kernel kernel) const { return (bits_ >> static_cast<unsigned>(kernel) & 1u) != 0; }
  constexpr bool is_empty() const { return bits_ == 0; }
  /// Returns the set in the form that read() takes.
  std::string text() const;
  constexpr bool operator==(const KernelSet&) const = default;

 private:
  explicit constexpr KernelSet(unsigned bits) : bits_(bits) {}

  unsigned bits_ = 0;  // bit i: kernel i
};

}  // namespace evenkeel::nn::cuda
