#include "nn/aten_engine/copied_values.h"

#include <ATen/ATen.h>

#include <map>
#include <utility>

namespace evenkeel::nn::aten {

void copy_values(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  std::map<at::ScalarType, std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> by_type;
  for (size_t i = 0; i < to.size(); ++i) {
    auto& [own, others] = by_type[to[i].scalar_type()];
    own.push_back(to[i]), others.push_back(from[i]);
  }
  for (const auto& [type, lists] : by_type) at::_foreach_copy_(lists.first, lists.second);
}

}  // namespace evenkeel::nn::aten
