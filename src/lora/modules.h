/// \file  Maps sites to the modules of a checkpoint and back. Module names come only from Site::modules, which the
/// model family sets; no other code builds or parses them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "lora/adapter.h"

namespace evenkeel::lora {

/// One linear of a site.
struct SitePart {
  std::string site;
  int64_t expert = -1;  ///< -1: the site is not a stack
};

/// Maps each module name to its site and expert. \throws kInternal when a site does not have one module per linear.
std::map<std::string, SitePart, std::less<>> parts_by_module(const Sites& sites);

/// Maps each module name to its dense factors A and B, which are views of `adapters`. \throws kInternal when `sites`
/// lacks a site or its modules.
std::map<std::string, LoraFactors> factors_by_module(const AdapterState& adapters, const Sites& sites);

/// Returns one expert's part of a stack's factor, as a view. \param expert  -1: returns the whole factor of a dense
/// site
at::Tensor expert_part(const at::Tensor& factor, int64_t expert);

}  // namespace evenkeel::lora
