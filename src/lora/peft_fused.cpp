#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/error.h"
#include "lora/peft_files.h"

namespace evenkeel::lora::peft {
namespace {

/// A parameter that several linear layers share, in the order of their outputs. An empty name: zeros.
struct FusedParameter {
  std::string name;  ///< as in target_parameters
  std::vector<std::string> parts;
  const Site* any = nullptr;  ///< one of its linears

  int64_t adapted() const {
    return std::count_if(parts.begin(), parts.end(), [](const auto& part) { return !part.empty(); });
  }
};

/// The fused parameters of one module, in PEFT's order.
using FusedModule = std::map<int64_t, FusedParameter>;

/// Returns the factors of all linears of a parameter as one pair, [*, n r, in] and [*, parts out, n r]. A linear
/// without factors has rank 0 and zero rows of B.
LoraFactors stacked(const FusedParameter& parameter, int64_t rank, const SiteReader& read) {
  const auto& site = *parameter.any;
  const int64_t ranks = parameter.adapted() * rank;
  LoraFactors all{.a = at::zeros(stacked_shape(site, ranks, site.in), at::kFloat),
                  .b = at::zeros(stacked_shape(site, site.fused.parts * site.out, ranks), at::kFloat)};
  int64_t row = 0, first_output = 0;
  for (const auto& part : parameter.parts) {
    if (!part.empty()) {
      const auto factors = read(part);
      all.a.narrow(-2, row, rank).copy_(factors.a);
      all.b.narrow(-2, first_output, site.out).narrow(-1, row, rank).copy_(factors.b);
      row += rank;
    }
    first_output += site.out;
  }
  return all;
}

/// Moves the expert axis into the rank axis: slowest in A, fastest in B.
LoraFactors in_two_axes(const LoraFactors& factors) {
  if (factors.a.dim() == 2) return factors;
  return {.a = factors.a.flatten(0, 1), .b = factors.b.permute({1, 2, 0}).flatten(1, 2)};
}

FilePair pair_of(const FusedParameter& parameter, int64_t rank, const SiteReader& read) {
  const auto& site = *parameter.any;
  const int64_t ranks = parameter.adapted() * rank * std::max<int64_t>(1, site.experts);
  return {.a = {ranks, site.in}, .b = {site.fused.parts * site.out, ranks}, .make = [parameter, rank, &read] {
            return in_two_axes(stacked(parameter, rank, read));
          }};
}

/// PEFT wraps a module once per adapted parameter, in their order. The first parameter is the innermost wrapper.
void add_module(const std::string& module, const FusedModule& parameters, int64_t rank, const SiteReader& read,
                std::map<std::string, FilePair>& pairs) {
  std::string wrapped = module;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    pairs[wrapped] = pair_of(parameter->second, rank, read);
    wrapped += ".base_layer";
  }
}

std::map<std::string, FusedModule> fused_modules(const std::set<std::string>& written, const Sites& sites) {
  std::map<std::string, FusedModule> modules;
  for (const auto& name : written) {
    const auto& site = sites.at(name);
    if (site.fused.module.empty()) continue;
    auto& parameter = modules[site.fused.module][site.fused.order];
    parameter.name = site.fused.parameter;
    parameter.any = &site;
    parameter.parts.resize(static_cast<size_t>(site.fused.parts));
    parameter.parts[static_cast<size_t>(site.fused.part)] = name;
  }
  return modules;
}

std::set<std::string> plain_ones(const std::set<std::string>& written, const Sites& sites) {
  std::set<std::string> plain;
  for (const auto& name : written)
    if (sites.at(name).fused.module.empty()) plain.insert(name);
  return plain;
}

}  // namespace

FolderContent fused_content(const std::set<std::string>& written, const Sites& sites, const PeftInfo& info,
                            const SiteReader& read) {
  auto content = per_expert_content(plain_ones(written, sites), sites, info, read);
  std::set<std::string> names;
  for (const auto& [module, parameters] : fused_modules(written, sites)) {
    add_module(module, parameters, info.rank, read, content.pairs);
    for (const auto& [order, parameter] : parameters) {
      names.insert(parameter.name);
      const auto n = parameter.adapted();
      if (n < 2) continue;
      const std::string own(last_name(parameter.name));
      content.config["rank_pattern"][own] = n * info.rank;
      content.config["alpha_pattern"][own] = static_cast<double>(n) * info.alpha;
    }
  }
  content.config["target_parameters"] = names;
  return content;
}

}  // namespace evenkeel::lora::peft
