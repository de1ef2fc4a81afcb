#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "lora/modules.h"
#include "lora/peft_files.h"

namespace evenkeel::lora {
namespace {

using peft::kA;
using peft::kB;
using peft::kPrefix;

/// A parameter that several linear layers share, in the order of their outputs. Null: the layer is not adapted.
struct FusedParameter {
  std::string name;
  std::vector<const LoraFactors*> parts;

  int64_t adapted() const {
    return std::count_if(parts.begin(), parts.end(), [](const auto* part) { return part; });
  }
};

/// The fused parameters of one module, in PEFT's order.
using FusedModule = std::map<int64_t, FusedParameter>;

/// The factors of all layers of a parameter as one pair. A layer that is not adapted has rank 0 and zero rows of B.
struct StackedParts {
  at::Tensor a, b;  // [*, n r, in], [*, parts out, n r]
};

at::Tensor with_sizes(const at::Tensor& like, int64_t rows, int64_t columns) {
  auto sizes = like.sizes().vec();
  sizes[sizes.size() - 2] = rows;
  sizes.back() = columns;
  return at::zeros(sizes, like.options());
}

StackedParts stack_parts(const FusedParameter& parameter) {
  const auto& any =
      **std::find_if(parameter.parts.begin(), parameter.parts.end(), [](const auto* part) { return part; });
  const int64_t rank = any.rank(), width = any.b.size(-2), ranks = parameter.adapted() * rank;
  StackedParts fused{with_sizes(any.a, ranks, any.a.size(-1)),
                     with_sizes(any.b, static_cast<int64_t>(parameter.parts.size()) * width, ranks)};
  int64_t row = 0, first_output = 0;
  for (const auto* part : parameter.parts) {
    if (part != nullptr) {
      fused.a.narrow(-2, row, rank).copy_(part->a);
      fused.b.narrow(-2, first_output, width).narrow(-1, row, rank).copy_(part->b);
      row += rank;
    }
    first_output += width;
  }
  return fused;
}

/// Moves the expert axis into the rank axis: slowest in A, fastest in B.
void add_factors_of(TensorMap& tensors, const std::string& module, const at::Tensor& a, const at::Tensor& b) {
  const bool stack = a.dim() == 3;
  tensors.emplace(concat(peft::kPrefix, module, peft::kA), stack ? a.flatten(0, 1) : a);
  tensors.emplace(concat(peft::kPrefix, module, peft::kB), stack ? b.permute({1, 2, 0}).flatten(1, 2) : b);
}

/// PEFT wraps a module once per adapted parameter, in their order. The first parameter is the innermost wrapper.
void add_module(TensorMap& tensors, const std::string& module, const FusedModule& parameters) {
  std::string wrapped = module;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const auto fused = stack_parts(parameter->second);
    add_factors_of(tensors, wrapped, fused.a, fused.b);
    wrapped += ".base_layer";
  }
}

/// The adapted modules of a model, as PEFT's two kinds of targets.
struct FusedTargets {
  std::set<std::string> modules, parameters;
  std::map<std::string, int64_t> parts;  ///< number of adapted linear layers per parameter, for parameters with several
};

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::map<std::string, FusedModule> fused_modules(const AdapterState& adapters, const Sites& sites) {
  std::map<std::string, FusedModule> modules;
  for (const auto& [name, f] : adapters) {
    const auto& place = sites.at(name).fused;
    if (place.module.empty()) continue;
    auto& parameter = modules[place.module][place.order];
    parameter.name = place.parameter;
    parameter.parts.resize(static_cast<size_t>(place.parts), nullptr);
    parameter.parts[static_cast<size_t>(place.part)] = &f;
  }
  return modules;
}

AdapterState plain_ones(const AdapterState& adapters, const Sites& sites) {
  AdapterState plain;
  for (const auto& [name, f] : adapters)
    if (sites.at(name).fused.module.empty()) plain.emplace(name, f);
  return plain;
}

}  // namespace

void save_fused_peft_adapter(const std::filesystem::path& folder, const AdapterState& adapters, const Sites& sites,
                             const PeftInfo& info) {
  peft::require_one_scaling(adapters, info);
  TensorMap tensors;
  FusedTargets targets;
  for (const auto& [module, f] : factors_by_module(plain_ones(adapters, sites), sites)) {
    add_factors_of(tensors, module, f.a, f.b);
    targets.modules.insert(last_part(module));
  }
  for (const auto& [module, parameters] : fused_modules(adapters, sites)) {
    add_module(tensors, module, parameters);
    for (const auto& [order, parameter] : parameters) {
      targets.parameters.insert(parameter.name);
      if (const auto n = parameter.adapted(); n > 1) targets.parts[last_part(parameter.name)] = n;
    }
  }
  auto config = peft::adapter_config(info);
  config["target_modules"] = targets.modules;
  config["target_parameters"] = targets.parameters;
  for (const auto& [parameter, n] : targets.parts) {
    config["rank_pattern"][parameter] = n * info.rank;
    config["alpha_pattern"][parameter] = static_cast<double>(n) * info.alpha;
  }
  peft::write_folder(folder, tensors, config);
}

}  // namespace evenkeel::lora
