#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "lora/peft_files.h"

namespace evenkeel {
namespace {

using peft::kA;
using peft::kB;
using peft::kPrefix;

constexpr std::string_view kGateUp = "mlp.experts.gate_up_proj";
constexpr std::string_view kDown = "mlp.experts.down_proj";
constexpr std::string_view kRouter = "mlp.gate.weight";

const LoraFactors* find(const AdapterState& adapters, const std::string& site) {
  const auto found = adapters.find(site);
  return found == adapters.end() ? nullptr : &found->second;
}

/// Both halves of gate_up_proj as one pair of factors. A half that is not adapted has no ranks and no rows in B.
struct GateUp {
  at::Tensor a_ERD, b_EOR;
};

GateUp stack_gate_up(const LoraFactors* gate, const LoraFactors* up) {
  const auto& any = gate != nullptr ? *gate : *up;
  const int64_t experts = any.a.size(0), rank = any.rank(), width = any.b.size(1);
  const int64_t ranks = gate != nullptr && up != nullptr ? 2 * rank : rank;
  GateUp fused{at::empty({experts, ranks, any.a.size(2)}, any.a.options()),
               at::zeros({experts, 2 * width, ranks}, any.b.options())};
  int64_t row = 0, first_output = 0;
  for (const auto* half : {gate, up}) {
    if (half != nullptr) {
      fused.a_ERD.narrow(1, row, rank).copy_(half->a);
      fused.b_EOR.narrow(1, first_output, width).narrow(2, row, rank).copy_(half->b);
      row += rank;
    }
    first_output += width;
  }
  return fused;
}

/// Experts move into the rank axis: slowest in A, fastest in B.
void add_stack(TensorMap& tensors, const std::string& module, const at::Tensor& a_ERD, const at::Tensor& b_EOR) {
  tensors.emplace(concat(kPrefix, module, kA), a_ERD.flatten(0, 1));
  tensors.emplace(concat(kPrefix, module, kB), b_EOR.permute({1, 2, 0}).flatten(1, 2));
}

/// What of a model's modules the adapter touches, by PEFT's two kinds of targets.
struct Targets {
  std::set<std::string_view> modules, parameters;
};

/// One layer's experts. PEFT wraps gate_up_proj first, so with both adapted it lies one wrapper deeper than down_proj.
void add_experts(TensorMap& tensors, Targets& targets, const AdapterState& adapters, const std::string& experts) {
  const auto* gate = find(adapters, experts + ".gate_proj");
  const auto* up = find(adapters, experts + ".up_proj");
  const auto* down = find(adapters, experts + ".down_proj");
  if (gate != nullptr || up != nullptr) {
    const auto fused = stack_gate_up(gate, up);
    add_stack(tensors, down != nullptr ? experts + ".base_layer" : experts, fused.a_ERD, fused.b_EOR);
    targets.parameters.insert(kGateUp);
  }
  if (down == nullptr) return;
  add_stack(tensors, experts, down->a, down->b);
  targets.parameters.insert(kDown);
}

void add_dense(TensorMap& tensors, Targets& targets, const std::string& site, const LoraFactors& f) {
  tensors.emplace(concat(kPrefix, site, kA), f.a);
  tensors.emplace(concat(kPrefix, site, kB), f.b);
  if (site.ends_with(".mlp.gate"))
    targets.parameters.insert(kRouter);
  else
    targets.modules.insert(std::string_view(site).substr(site.rfind('.') + 1));
}

bool stacks_both_halves(const AdapterState& adapters) {
  const auto adapts = [&](std::string_view end) {
    return std::any_of(adapters.begin(), adapters.end(), [&](const auto& entry) { return entry.first.ends_with(end); });
  };
  return adapts(".experts.gate_proj") && adapts(".experts.up_proj");
}

}  // namespace

void save_fused_peft_adapter(const std::filesystem::path& folder, const AdapterState& adapters, const PeftInfo& info) {
  peft::require_one_scaling(adapters, info);
  TensorMap tensors;
  Targets targets;
  std::set<std::string> stacks;
  for (const auto& [site, f] : adapters) {
    if (f.a.dim() == 3)
      stacks.insert(site.substr(0, site.rfind('.')));
    else
      add_dense(tensors, targets, site, f);
  }
  for (const auto& experts : stacks) add_experts(tensors, targets, adapters, experts);
  auto config = peft::adapter_config(info);
  config["target_modules"] = targets.modules;
  config["target_parameters"] = targets.parameters;
  if (stacks_both_halves(adapters)) {
    config["rank_pattern"] = {{"gate_up_proj", 2 * info.rank}};
    config["alpha_pattern"] = {{"gate_up_proj", 2 * info.alpha}};
  }
  peft::write_folder(folder, tensors, config);
}

}  // namespace evenkeel
