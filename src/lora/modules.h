/// \file  Between sites and the modules of a checkpoint, both ways. A family says with Site::modules how its
/// checkpoints name what it adapts; nobody else puts such names together or takes them apart.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "lora/adapter.h"

namespace evenkeel {

/// One linear of a site.
struct SitePart {
  std::string site;
  int64_t expert = -1;  ///< -1: the site is no stack
};

/// Module -> what it is a linear of. \throws kInternal when a site has no module for each of its linears.
std::map<std::string, SitePart, std::less<>> parts_by_module(const Sites& sites);

/// Module -> its factors, dense: views of `adapters`. \throws kInternal when `sites` lacks a site or its modules.
std::map<std::string, LoraFactors> factors_by_module(const AdapterState& adapters, const Sites& sites);

/// Of a stack's factor that of one expert, a view; of a dense site's all of it.
at::Tensor expert_part(const at::Tensor& factor, int64_t expert);

}  // namespace evenkeel
