#include "lora/peft.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/text.h"
#include "lora/modules.h"
#include "lora/peft_config.h"
#include "lora/peft_files.h"

namespace evenkeel::lora {
namespace {

using peft::kA;
using peft::kB;
using peft::kPrefix;

/// Returns the sites of an adapter file. \throws kCheckpoint on a name that is not a LoRA factor of a known site.
std::set<std::string> touched_sites(const TensorMap& tensors, const Sites& sites, const std::string& file) {
  const auto known = parts_by_module(sites);
  std::set<std::string> touched;
  for (const auto& [name, tensor] : tensors) {
    const std::string_view view = name;
    const auto end = view.ends_with(peft::kA) ? peft::kA : view.ends_with(peft::kB) ? peft::kB : std::string_view();
    EK_CHECK(view.starts_with(peft::kPrefix) && !end.empty(), kCheckpoint, file, ": unexpected tensor ",
             shown(name, 160));
    const auto part = known.find(view.substr(peft::kPrefix.size(), view.size() - peft::kPrefix.size() - end.size()));
    EK_CHECK(part != known.end(), kCheckpoint, file, ": tensor ", shown(name, 160), " adapts a module the model lacks");
    touched.insert(part->second.site);
  }
  return touched;
}

/// Returns the fused expert parameter that contains a site, or an empty string.
std::string parameter_of(const Site& site) {
  const auto& place = site.fused;
  return place.module.empty() ? std::string() : concat(place.module, '.', peft::last_name(place.parameter));
}

/// Returns the name under which PEFT looked up rank and alpha of a module. For a router adapted as a parameter it is
/// the parameter's name.
std::string name_in_patterns(const Site& site, const std::string& module, const peft::AdapterConfig& config) {
  const auto parameter = site.experts > 0 ? std::string() : parameter_of(site);
  return !parameter.empty() && config.adapts_parameter(parameter) ? parameter : module;
}

bool holds_factors(const TensorMap& tensors, const std::string& module) {
  return tensors.contains(concat(peft::kPrefix, module, peft::kA)) ||
         tensors.contains(concat(peft::kPrefix, module, peft::kB));
}

/// Replaces the block's names of routers in the file by the model's names.
void rename_routers(TensorMap& tensors, const Sites& sites) {
  for (const auto& [site_name, site] : sites) {
    const auto& there = site.fused.module;
    if (site.experts > 0 || there.empty() || there == site.modules.front()) continue;
    for (const auto end : {peft::kA, peft::kB})
      if (auto found = tensors.extract(concat(peft::kPrefix, there, end))) {
        found.key() = concat(peft::kPrefix, site.modules.front(), end);
        tensors.insert(std::move(found));
      }
  }
}

/// Compares the config's list of adapted modules with the tensors in the file.
class Completeness {
 public:
  Completeness(const TensorMap& tensors, const peft::AdapterConfig& config, const std::string& file)
      : tensors_(tensors), config_(config), file_(file) {}

  /// \throws kCheckpoint naming a module whose factors PEFT would not load.
  void look_at(const Site& site) {
    const auto parameter = parameter_of(site);
    const bool by_parameter = !parameter.empty() && config_.adapts_parameter(parameter);
    const bool fused = site.experts > 0 && holds_factors(tensors_, site.fused.module);
    size_t there = 0;
    for (const auto& module : site.modules) there += look_at(site, module, by_parameter || fused);
    if (by_parameter && !fused && there == 0) note(parameter);
  }

  void report() const {
    if (missing_ == 0) return;
    log::warning("[adapter] ", file_, " is not whole: adapter_config.json names ", missing_ + present_,
                 " linears of the model, and ", missing_, " have no tensors, the first is ", first_missing_,
                 "; they stay as the base model has them");
  }

 private:
  bool look_at(const Site& site, const std::string& module, bool by_parameter) {
    const bool is_there = holds_factors(tensors_, module);
    const bool named = config_.targets.has(module) || (site.experts == 0 && config_.targets.has(site.fused.module));
    EK_CHECK(!is_there || named || by_parameter, kCheckpoint, file_, ": holds factors of ", module,
             ", which target_modules, exclude_modules and layers_to_transform of adapter_config.json leave out");
    if (is_there) ++present_;
    if (named && !is_there && !by_parameter) note(module);
    return is_there;
  }
  void note(const std::string& name) {
    if (missing_++ == 0) first_missing_ = name;
  }

  const TensorMap& tensors_;
  const peft::AdapterConfig& config_;
  const std::string& file_;
  size_t present_ = 0, missing_ = 0;
  std::string first_missing_{};
};

/// PEFT 0.21 warns of missing tensors and gives them no effect. This function does the same.
void check_completeness(const TensorMap& tensors, const Sites& sites, const peft::AdapterConfig& config,
                        const std::string& file) {
  if (!config.targets.known()) return;
  Completeness completeness(tensors, config, file);
  for (const auto& [name, site] : sites) completeness.look_at(site);
  completeness.report();
}

/// The linear layers of a site that the file contains, with their ranks and scalings. Experts may differ in both.
struct SiteShape {
  std::vector<size_t> linears;
  std::vector<int64_t> ranks;
  std::vector<double> scalings;

  SiteShape(const TensorMap& tensors, const Site& site, const peft::AdapterConfig& config) {
    for (size_t i = 0; i < site.modules.size(); ++i) {
      if (!holds_factors(tensors, site.modules[i])) continue;
      const auto name = name_in_patterns(site, site.modules[i], config);
      linears.push_back(i);
      ranks.push_back(config.rank_of(name));
      scalings.push_back(config.scaling_of(name));
    }
  }
  int64_t rank() const { return *std::max_element(ranks.begin(), ranks.end()); }
  bool one_scaling() const { return std::equal(scalings.begin() + 1, scalings.end(), scalings.begin()); }
};

/// Reads the factors of a site. Lower ranks are padded with zeros, and unequal scalings are multiplied into B. An
/// expert that is missing in the file gets zeros.
LoraFactors read_site(TensorMap& left, const Site& site, const peft::AdapterConfig& config, const std::string& file) {
  const SiteShape shape(left, site, config);
  std::vector<at::Tensor> a, b;  // shapes are checked before memory of the file's rank is allocated
  for (size_t i = 0; i < shape.linears.size(); ++i) {
    const auto& module = site.modules[shape.linears[i]];
    a.push_back(peft::take_factor(left, concat(peft::kPrefix, module, peft::kA), {shape.ranks[i], site.in}, file));
    b.push_back(peft::take_factor(left, concat(peft::kPrefix, module, peft::kB), {site.out, shape.ranks[i]}, file));
  }
  auto factors = zero_factors(site, shape.rank(), shape.one_scaling() ? shape.scalings.front() : 1.0);
  for (size_t i = 0; i < a.size(); ++i) {
    const auto expert = site.experts > 0 ? static_cast<int64_t>(shape.linears[i]) : -1;
    expert_part(factors.a, expert).narrow(0, 0, shape.ranks[i]).copy_(a[i]);
    const auto own = expert_part(factors.b, expert).narrow(1, 0, shape.ranks[i]);
    own.copy_(b[i]);
    if (!shape.one_scaling()) own.mul_(shape.scalings[i]);
  }
  return factors;
}

void check_values(const AdapterState& adapters, const std::string& file) {
  try {
    check_finite(adapters, file);
  } catch (const Error& error) {
    throw Error(kCheckpoint, error.message());
  }
}

bool is_zero(const at::Tensor& factor) { return factor.count_nonzero().item<int64_t>() == 0; }

/// Removes sites whose factors are all zero. If all are, the adapter is unchanged.
AdapterState without_padding(AdapterState adapters) {
  auto used = adapters;
  std::erase_if(used, [](const auto& site) { return is_zero(site.second.b) && is_zero(site.second.a); });
  return used.empty() ? adapters : used;
}

}  // namespace

AdapterState load_peft_adapter(const fs::path& folder, const Sites& sites) {
  const auto config = peft::read_adapter_config(folder / "adapter_config.json");
  const auto file = folder / "adapter_model.safetensors";
  EK_CHECK(path_exists(file) || !path_exists(folder / "adapter_model.bin"), kCheckpoint, folder.string(),
           ": only adapter_model.bin is there; save the adapter as safetensors");
  auto left = load_safetensors(file).tensors;
  EK_CHECK(!left.empty(), kCheckpoint, file.string(), ": holds no adapter");
  rename_routers(left, sites);
  check_completeness(left, sites, config, file.string());
  auto adapters = peft::take_fused(left, sites, config, file.string());
  for (const auto& name : touched_sites(left, sites, file.string()))
    EK_CHECK(adapters.emplace(name, read_site(left, sites.at(name), config, file.string())).second, kCheckpoint,
             file.string(), ": holds ", name, " in both layouts");
  EK_CHECK(left.empty(), kCheckpoint, file.string(), ": unexpected tensor ", shown(left.begin()->first, 160));
  check_values(adapters, file.string());
  return without_padding(std::move(adapters));
}

}  // namespace evenkeel::lora
