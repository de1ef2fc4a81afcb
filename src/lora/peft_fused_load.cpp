#include <ATen/ATen.h>

#include <algorithm>

#include "lora/peft_files.h"

namespace evenkeel::lora::peft {
namespace {

/// A linear layer of a parameter; null if the selected sites do not contain it.
struct Share {
  std::string name;
  const Site* site = nullptr;
};

/// A parameter that contains the experts of one or several linear layers.
struct Stack {
  std::string name;  // module name, dot, parameter name
  std::vector<Share> shares;

  const Site& any() const {
    return *std::find_if(shares.begin(), shares.end(), [](const Share& share) { return share.site; })->site;
  }
};

/// Returns the stacks of each module, in PEFT's order.
std::map<std::string, std::map<int64_t, Stack>> stacks_by_module(const Sites& sites) {
  std::map<std::string, std::map<int64_t, Stack>> modules;
  for (const auto& [name, site] : sites) {
    const auto& place = site.fused;
    if (place.module.empty() || site.experts == 0) continue;
    auto& stack = modules[place.module][place.order];
    stack.name = concat(place.module, '.', place.parameter.substr(place.parameter.rfind('.') + 1));
    stack.shares.resize(static_cast<size_t>(place.parts));
    stack.shares[static_cast<size_t>(place.part)] = {name, &site};
  }
  return modules;
}

/// Returns the name prefixes of PEFT's wrappers of a module, one per adapted parameter, outermost first.
std::vector<std::string> wrappers(const TensorMap& tensors, const std::string& module) {
  std::vector<std::string> names;
  for (auto name = concat(kPrefix, module); tensors.contains(concat(name, kA)) || tensors.contains(concat(name, kB));
       name += ".base_layer")
    names.push_back(name);
  return names;
}

/// Returns both factors of a stack, [E, r, in] and [E, n out, r]. In the file experts are part of the rank axis,
/// slowest in A and fastest in B.
LoraFactors take_stack(TensorMap& left, const std::string& wrapper, const Stack& stack, const AdapterConfig& config,
                       const std::string& file) {
  const auto& site = stack.any();
  const int64_t rank = config.rank_of(stack.name), rows = static_cast<int64_t>(stack.shares.size()) * site.out;
  const auto a = take_factor(left, concat(wrapper, kA), {site.experts * rank, site.in}, file);
  const auto b = take_factor(left, concat(wrapper, kB), {rows, rank * site.experts}, file);
  return {.a = a.view({site.experts, rank, site.in}),
          .b = b.view({rows, rank, site.experts}).permute({2, 0, 1}),
          .scaling = config.scaling_of(stack.name)};
}

bool is_zero(const at::Tensor& tensor) { return tensor.numel() == 0 || tensor.abs().max().item<float>() == 0; }

/// Returns the diagonal block of a layer if B is block-diagonal.
at::Tensor own_block(const at::Tensor& rows, size_t share, int64_t rank) {
  return rows.narrow(2, static_cast<int64_t>(share) * rank, rank);
}

/// Returns the rows of B of each layer, [E, out, r].
std::vector<at::Tensor> rows_by_share(const LoraFactors& whole, size_t shares) {
  return whole.b.chunk(static_cast<int64_t>(shares), 1);
}

bool is_block_diagonal(const std::vector<at::Tensor>& rows, int64_t rank) {
  if (rank % static_cast<int64_t>(rows.size()) != 0) return false;
  const int64_t own = rank / static_cast<int64_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t first = static_cast<int64_t>(i) * own;
    if (!is_zero(rows[i].narrow(2, 0, first)) || !is_zero(rows[i].narrow(2, first + own, rank - first - own)))
      return false;
  }
  return true;
}

std::vector<LoraFactors> split(const LoraFactors& whole, size_t shares) {
  const auto rows = rows_by_share(whole, shares);
  const bool blocks = is_block_diagonal(rows, whole.rank());
  const int64_t rank = whole.rank() / static_cast<int64_t>(shares);
  std::vector<LoraFactors> parts;
  for (size_t i = 0; i < shares; ++i)
    parts.push_back({.a = (blocks ? whole.a.narrow(1, static_cast<int64_t>(i) * rank, rank) : whole.a)
                              .clone(at::MemoryFormat::Contiguous),
                     .b = (blocks ? own_block(rows[i], i, rank) : rows[i]).clone(at::MemoryFormat::Contiguous),
                     .scaling = whole.scaling});
  const bool some = !is_zero(whole.b);
  for (auto& part : parts)
    if (!blocks && some && is_zero(part.b)) part = {};
  return parts;
}

void add_shares(const Stack& stack, const LoraFactors& whole, const std::string& file, AdapterState& adapters) {
  auto parts = split(whole, stack.shares.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].a.defined()) continue;
    const auto& share = stack.shares[i];
    EK_CHECK(share.site || is_zero(parts[i].b), kCheckpoint, file, ": share ", i, " of ", stack.name,
             " is adapted, which the model lacks");
    if (share.site) adapters.emplace(share.name, std::move(parts[i]));
  }
}

}  // namespace

AdapterState take_fused(TensorMap& left, const Sites& sites, const AdapterConfig& config, const std::string& file) {
  AdapterState adapters;
  for (const auto& [module, stacks] : stacks_by_module(sites)) {
    auto outermost = wrappers(left, module);
    if (outermost.empty()) continue;
    std::vector<const Stack*> adapted;
    for (const auto& [order, stack] : stacks)
      if (config.adapts_parameter(stack.name)) adapted.push_back(&stack);
    EK_CHECK(adapted.size() == outermost.size(), kCheckpoint, file, ": ", module, " has factors of ", outermost.size(),
             " parameters, and target_parameters names ", adapted.size(), " of it that the model has");
    for (size_t i = 0; i < adapted.size(); ++i)
      add_shares(*adapted[i], take_stack(left, outermost[adapted.size() - 1 - i], *adapted[i], config, file), file,
                 adapters);
  }
  return adapters;
}

}  // namespace evenkeel::lora::peft
