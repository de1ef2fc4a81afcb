/// \file  Groups the factors of an adapter by their shapes, so that the sites of all layers can be computed together.
#pragma once

#include <vector>

#include "lora/adapter.h"

namespace evenkeel::lora {

/// The factors of sites of equal shapes, one tensor per site and kind. A list is empty if no site has the kind.
struct EqualFactors {
  std::vector<at::Tensor> a{}, b{}, core{};
};
/// Returns all factors in groups of equal shapes. Groups are in the order of their first sites, sites in name order.
/// The tensors are not copied.
std::vector<EqualFactors> equal_factors(const AdapterState& adapters);

}  // namespace evenkeel::lora
