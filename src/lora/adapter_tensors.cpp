#include "lora/adapter_tensors.h"

#include "base/plain/error.h"

namespace evenkeel::lora {
namespace {

constexpr std::string_view kRanks = "ranks";

/// Returns the tensor of a site that has this name in files; null if there is none.
at::Tensor LoraFactors::*tensor_named(std::string_view name) {
  for (const auto& factor : kFactors)
    if (factor.name == name) return factor.tensor;
  return name == kRanks ? &LoraFactors::ranks : nullptr;
}

}  // namespace

void add_factors(std::string_view site, const LoraFactors& factors, const AddTensor& add) {
  const auto add_defined = [&](std::string_view name, const at::Tensor& tensor) {
    if (tensor.defined()) add(concat(site, '/', name), tensor);
  };
  for (const auto& factor : kFactors) add_defined(factor.name, factors.*factor.tensor);
  add_defined(kRanks, factors.ranks);
}

bool insert_factor(AdapterState& adapters, std::string_view name, const at::Tensor& tensor) {
  const auto slash = name.rfind('/');
  if (slash == std::string_view::npos) return false;
  const auto named = tensor_named(name.substr(slash + 1));
  if (named) adapters[std::string(name.substr(0, slash))].*named = tensor;
  return named != nullptr;
}

}  // namespace evenkeel::lora
