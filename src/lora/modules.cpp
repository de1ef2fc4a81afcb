#include "lora/modules.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"

namespace evenkeel::lora {
namespace {

/// Calls `use(module, expert)` for each linear of a site.
template <typename Use>
void for_each_module(const std::string& name, const Site& site, Use use) {
  const auto expected = static_cast<size_t>(std::max<int64_t>(1, site.experts));
  EK_CHECK(site.modules.size() == expected, kInternal, "site ", name, " names ", site.modules.size(),
           " modules, expected ", expected);
  for (size_t i = 0; i < expected; ++i) use(site.modules[i], site.experts > 0 ? static_cast<int64_t>(i) : -1);
}

}  // namespace

at::Tensor expert_part(const at::Tensor& factor, int64_t expert) {
  return expert < 0 ? factor : factor.select(0, expert);
}

std::map<std::string, SitePart, std::less<>> parts_by_module(const Sites& sites) {
  std::map<std::string, SitePart, std::less<>> parts;
  for (const auto& [name, site] : sites)
    for_each_module(name, site, [&](const std::string& module, int64_t expert) {
      parts.emplace(module, SitePart{name, expert});
    });
  return parts;
}

std::map<std::string, LoraFactors> factors_by_module(const AdapterState& adapters, const Sites& sites) {
  std::map<std::string, LoraFactors> factors;
  for (const auto& [name, f] : adapters) {
    const auto site = sites.find(name);
    EK_CHECK(site != sites.end(), kInternal, "an adapter of site ", name, ", which the model does not have");
    for_each_module(name, site->second, [&](const std::string& module, int64_t expert) {
      factors.emplace(module,
                      LoraFactors{.a = expert_part(f.a, expert), .b = expert_part(f.b, expert), .scaling = f.scaling});
    });
  }
  return factors;
}

}  // namespace evenkeel::lora
