#include "lora/adapter_tensors.h"

#include <array>

#include "base/plain/error.h"

namespace evenkeel::lora {
namespace {

struct Factor {
  std::string_view name;
  at::Tensor LoraFactors::*tensor;
};
constexpr std::array kFactors{Factor{"a", &LoraFactors::a}, Factor{"b", &LoraFactors::b},
                              Factor{"core", &LoraFactors::core}, Factor{"ranks", &LoraFactors::ranks}};

}  // namespace

void add_factors(std::string_view site, const LoraFactors& factors, const AddTensor& add) {
  for (const auto& factor : kFactors)
    if (const auto& tensor = factors.*factor.tensor; tensor.defined()) add(concat(site, '/', factor.name), tensor);
}

bool insert_factor(AdapterState& adapters, std::string_view name, const at::Tensor& tensor) {
  const auto slash = name.rfind('/');
  if (slash == std::string_view::npos) return false;
  for (const auto& factor : kFactors)
    if (name.substr(slash + 1) == factor.name) {
      adapters[std::string(name.substr(0, slash))].*factor.tensor = tensor;
      return true;
    }
  return false;
}

}  // namespace evenkeel::lora
