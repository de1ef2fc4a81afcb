#include "lora/equal_factors.h"

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <map>

namespace evenkeel::lora {

std::vector<EqualFactors> equal_factors(const AdapterState& adapters) {
  using Shape = std::vector<int64_t>;
  const auto shape = [](const at::Tensor& t) { return t.defined() ? t.sizes().vec() : Shape{}; };
  const auto add = [](std::vector<at::Tensor>& list, const at::Tensor& t) {
    if (t.defined()) list.push_back(t);
  };
  std::map<std::array<Shape, 3>, size_t> group_of;
  std::vector<EqualFactors> groups;
  for (const auto& [name, f] : adapters) {
    const auto known = group_of.try_emplace({shape(f.a), shape(f.b), shape(f.core)}, groups.size());
    if (known.second) groups.emplace_back();
    auto& group = groups[known.first->second];
    add(group.a, f.a), add(group.b, f.b), add(group.core, f.core);
  }
  return groups;
}

}  // namespace evenkeel::lora
