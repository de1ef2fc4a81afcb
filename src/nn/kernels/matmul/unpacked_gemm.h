/// \file  Products of which one operand is read as it lies, no copy of it made: activations that meet so few columns
/// that packing them would take longer than multiplying them (LoRA's factors), and weights that so few rows meet (an
/// expert's share of a small batch), or that tiles take as they lie, however many rows meet them. The sums of
/// packed_product.h in the same order: to the same bits.
#pragma once

#include <span>

#include "nn/kernels/matmul/matmul_operands.h"

namespace evenkeel::kernels {

/// As times_transposed and times of packed_product.h. \return false where nothing lies well, and nothing was done
bool lying_times_transposed(const Activations& x, std::span<const SideBySide> products, PackedScratch& scratch);
bool lying_times(const Activations& x, const SideBySide& product, PackedScratch& scratch);

}  // namespace evenkeel::kernels
