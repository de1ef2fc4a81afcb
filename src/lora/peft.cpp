#include "lora/peft.h"

#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "lora/peft_files.h"

namespace evenkeel {
namespace {

using peft::kA;
using peft::kB;
using peft::kPrefix;
constexpr std::string_view kExperts = ".experts.";

std::string_view last_name(std::string_view module) { return module.substr(module.rfind('.') + 1); }

/// "…mlp.experts.up_proj" and 7 -> "…mlp.experts.7.up_proj".
std::string expert_module(const std::string& site, int64_t expert) {
  const auto dot = site.rfind('.');
  return concat(site.substr(0, dot), ".", expert, site.substr(dot));
}

/// Calls `use(module, expert)` for each Linear of a site; expert is -1 for a dense one.
template <typename Use>
void for_each_module(const std::string& site, int64_t experts, Use use) {
  if (experts == 0) return use(site, int64_t{-1});
  for (int64_t e = 0; e < experts; ++e) use(expert_module(site, e), e);
}

at::Tensor part_of(const at::Tensor& stacked, int64_t expert) {
  return expert < 0 ? stacked : stacked.select(0, expert);
}

/// What adapter_config.json says that matters here.
struct Header {
  int64_t rank = 0;
  double scaling = 1.0;
};

/// Keys that change what an adapter means, with the only values that mean plain LoRA.
void require_plain_lora(const Json& config, const std::string& file) {
  const auto refuse = [&](std::string_view key, std::string_view allowed) {
    fail(kCheckpoint, file, ": ", key, " is ", config[key].dump(), ", allowed: ", allowed);
  };
  EK_CHECK(config.is_object() && config.contains("peft_type"), kCheckpoint, file, ": not an adapter_config.json");
  if (config["peft_type"] != "LORA") refuse("peft_type", "\"LORA\"");
  if (config.contains("bias") && config["bias"] != "none") refuse("bias", "\"none\"");
  for (const auto* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"})
    if (config.contains(key) && config[key] != false) refuse(key, "false");
  for (const auto* key : {"modules_to_save", "rank_pattern", "alpha_pattern", "target_parameters", "layer_replication",
                          "trainable_token_indices", "megatron_config", "corda_config", "eva_config"})
    if (config.contains(key) && !config[key].empty()) refuse(key, "nothing there");
  if (!config.contains("init_lora_weights") || config["init_lora_weights"].is_boolean()) return;
  for (const auto* kind : {"gaussian", "orthogonal"})
    if (config["init_lora_weights"] == kind) return;
  refuse("init_lora_weights", "true, false, \"gaussian\", \"orthogonal\" (others change the base model too)");
}

Header read_header(const fs::path& file) {
  const Json config = load_json(file, kCheckpoint);
  require_plain_lora(config, file.string());
  EK_CHECK(config.contains("r") && config["r"].is_number_integer() && config["r"].get<int64_t>() > 0, kCheckpoint,
           file.string(), ": r is missing or not a whole number above 0");
  EK_CHECK(config.contains("lora_alpha") && config["lora_alpha"].is_number(), kCheckpoint, file.string(),
           ": lora_alpha is missing or not a number");
  const auto rank = config["r"].get<int64_t>();
  const bool square_root = config.value("use_rslora", false);
  const double below = square_root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank);
  return {rank, config["lora_alpha"].get<double>() / below};
}

/// "…mlp.experts.7.up_proj" -> the site "…mlp.experts.up_proj"; a dense module is its own site.
std::string site_of(std::string_view module, const Sites& sites) {
  const auto at = module.rfind(kExperts);
  if (at == std::string_view::npos || sites.contains(std::string(module))) return std::string(module);
  const auto number = at + kExperts.size();
  const auto dot = module.find('.', number);
  if (dot == std::string_view::npos) return std::string(module);
  return concat(module.substr(0, number - 1), module.substr(dot));
}

/// The sites an adapter file touches. \throws kCheckpoint on a name that is not a LoRA factor of a known site.
std::set<std::string> touched_sites(const TensorMap& tensors, const Sites& sites, const std::string& file) {
  std::set<std::string> touched;
  for (const auto& [name, tensor] : tensors) {
    const std::string_view view = name;
    const auto end = view.ends_with(kA) ? kA : view.ends_with(kB) ? kB : std::string_view();
    EK_CHECK(view.starts_with(kPrefix) && !end.empty(), kCheckpoint, file, ": unexpected tensor ", name);
    const auto site = site_of(view.substr(kPrefix.size(), view.size() - kPrefix.size() - end.size()), sites);
    EK_CHECK(sites.contains(site), kCheckpoint, file, ": tensor ", name, " adapts a module the model lacks");
    touched.insert(site);
  }
  EK_CHECK(!touched.empty(), kCheckpoint, file, ": holds no adapter");
  return touched;
}

/// Takes one factor out of `left` into `into`.
void take_factor(TensorMap& left, const std::string& name, const at::Tensor& into, const std::string& file) {
  const auto found = left.find(name);
  EK_CHECK(found != left.end(), kCheckpoint, file, ": tensor ", name, " is missing");
  const auto& tensor = found->second;
  EK_CHECK(tensor.is_floating_point(), kCheckpoint, file, ": tensor ", name, " is not floating-point");
  EK_CHECK(tensor.sizes() == into.sizes(), kCheckpoint, file, ": tensor ", name, " is ", tensor.sizes(), ", expected ",
           into.sizes());
  into.copy_(tensor);
  left.erase(found);
}

LoraFactors read_site(TensorMap& left, const std::string& name, const Site& site, const Header& header,
                      const std::string& file) {
  std::vector<int64_t> shape_a{header.rank, site.in}, shape_b{site.out, header.rank};
  if (site.experts > 0) {
    shape_a.insert(shape_a.begin(), site.experts);
    shape_b.insert(shape_b.begin(), site.experts);
  }
  LoraFactors factors{at::empty(shape_a, at::kFloat), at::empty(shape_b, at::kFloat), {}, header.scaling};
  for_each_module(name, site.experts, [&](const std::string& module, int64_t expert) {
    take_factor(left, concat(kPrefix, module, kA), part_of(factors.a, expert), file);
    take_factor(left, concat(kPrefix, module, kB), part_of(factors.b, expert), file);
  });
  return factors;
}

void check_values(const AdapterState& adapters, const std::string& file) {
  try {
    check_finite(adapters, file);
  } catch (const Error& error) {
    const std::string text = error.what();
    throw Error(kCheckpoint, text.substr(text.find(' ') + 1));
  }
}

}  // namespace

PeftInfo peft_info(const std::string& base_model, const AdapterState& adapters) {
  if (adapters.empty()) return {.base_model = base_model, .alpha = 1, .rank = 1};
  const auto& any = adapters.begin()->second;
  return {.base_model = base_model, .alpha = any.scaling * static_cast<double>(any.rank()), .rank = any.rank()};
}

void save_peft_adapter(const fs::path& folder, const AdapterState& adapters, const PeftInfo& info) {
  peft::require_one_scaling(adapters, info);
  TensorMap tensors;
  for (const auto& [site, f] : adapters)
    for_each_module(site, f.a.dim() == 3 ? f.a.size(0) : 0, [&](const std::string& module, int64_t expert) {
      tensors.emplace(concat(kPrefix, module, kA), part_of(f.a, expert));
      tensors.emplace(concat(kPrefix, module, kB), part_of(f.b, expert));
    });
  std::set<std::string_view> targets;
  for (const auto& [site, factors] : adapters) targets.insert(last_name(site));
  auto config = peft::adapter_config(info);
  config["target_modules"] = targets;
  peft::write_folder(folder, tensors, config);
}

AdapterState load_peft_adapter(const fs::path& folder, const Sites& sites) {
  const Header header = read_header(folder / "adapter_config.json");
  const auto file = folder / "adapter_model.safetensors";
  EK_CHECK(fs::exists(file) || !fs::exists(folder / "adapter_model.bin"), kCheckpoint, folder.string(),
           ": only adapter_model.bin is there; save the adapter as safetensors");
  auto left = load_safetensors(file).tensors;
  AdapterState adapters;
  for (const auto& name : touched_sites(left, sites, file.string()))
    adapters.emplace(name, read_site(left, name, sites.at(name), header, file.string()));
  EK_CHECK(left.empty(), kCheckpoint, file.string(), ": unexpected tensor ", left.begin()->first);
  check_values(adapters, file.string());
  return adapters;
}

}  // namespace evenkeel
