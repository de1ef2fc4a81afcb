#include <ATen/ATen.h>

#include <algorithm>
#include <deque>

#include "base/plain/files.h"
#include "lora/modules.h"
#include "lora/peft.h"
#include "lora/peft_files.h"

namespace evenkeel::lora {
namespace {

using Names = std::set<std::string>;

/// Adds the sites of a layer's experts that `takes` accepts, in layers where a site of `names` is an expert's.
template <typename Takes>
void add_experts(Names& names, const Sites& sites, Takes takes) {
  Names layers;
  for (const auto& name : names)
    if (const auto& site = sites.at(name); site.role == SiteRole::kExpert) layers.insert(site.moe_layer);
  for (const auto& [name, site] : sites)
    if (site.role == SiteRole::kExpert && layers.contains(site.moe_layer) && takes(site)) names.insert(name);
}

/// Adds to each layer the linears that any layer has. The file names parameters and their ranks once for all layers.
void add_linears_of_other_layers(Names& names, const Sites& sites) {
  std::set<std::pair<int64_t, int64_t>> adapted;  // order and part
  for (const auto& name : names)
    if (const auto& site = sites.at(name); site.role == SiteRole::kExpert)
      adapted.emplace(site.fused.order, site.fused.part);
  add_experts(names, sites, [&](const Site& site) { return adapted.contains({site.fused.order, site.fused.part}); });
}

/// Reads the factors of sites. It keeps those that were read last, because tensors of a layer's three stacks alternate
/// in the file.
class LastSites {
 public:
  LastSites(const Joined& adapter, const Sites& sites, const PeftInfo& info)
      : adapter_(adapter), sites_(sites), info_(info), adapted_(adapter.sites().begin(), adapter.sites().end()) {
    // A file without tensors is no adapter to any reader.
    if (adapted_.empty()) adapted_.insert(sites.begin()->first);
  }

  LoraFactors at(const std::string& site) {
    const auto known = std::find_if(made_.begin(), made_.end(), [&](const auto& one) { return one.first == site; });
    if (known != made_.end()) return known->second;
    if (made_.size() == kKept) made_.pop_front();
    const auto& own = made_.emplace_back(site, read(site));
    peft::require_one_scaling({own}, info_);
    return own.second;
  }
  /// Returns the sites with an adapter, at least one.
  const Names& adapted() const { return adapted_; }

 private:
  LoraFactors read(const std::string& site) const {
    const auto& own = adapter_.sites();
    const bool zero = adapter_.rank() == 0 || !std::binary_search(own.begin(), own.end(), site);
    return zero ? zero_factors(sites_.at(site), info_.rank, info_.alpha / double(info_.rank)) : adapter_.factors(site);
  }

  static constexpr size_t kKept = 4;
  const Joined& adapter_;
  const Sites& sites_;
  const PeftInfo& info_;
  Names adapted_;
  std::deque<std::pair<const std::string, LoraFactors>> made_{};
};

PeftInfo info_of(const Joined& adapter, const std::string& base_model) {
  if (adapter.rank() == 0) return peft_info(base_model, {});
  const auto& first = adapter.sites().front();
  return peft_info(base_model, {{first, adapter.factors(first)}});
}

}  // namespace

PeftLayout standard_layout(PeftFamily family) {
  return family == PeftFamily::kJoined ? PeftLayout::kFused : PeftLayout::kPerExpert;
}

std::set<std::string> written_sites(std::set<std::string> adapted, const Sites& sites, PeftLayout layout,
                                    bool whole_layers) {
  if (whole_layers) add_experts(adapted, sites, [](const Site&) { return true; });
  if (layout == PeftLayout::kFused) add_linears_of_other_layers(adapted, sites);
  return adapted;
}

PeftInfo peft_info(const std::string& base_model, const AdapterState& adapters) {
  if (adapters.empty()) return {.base_model = base_model, .alpha = 1, .rank = 1};
  const auto& any = adapters.begin()->second;
  return {.base_model = base_model, .alpha = any.scaling * static_cast<double>(any.rank()), .rank = any.rank()};
}

AdapterState with_one_rank(AdapterState adapters) {
  int64_t rank = 1;
  for (const auto& [name, factors] : adapters) rank = std::max(rank, factors.rank());
  const double scaling = adapters.empty() ? 1.0 : adapters.begin()->second.scaling;
  const bool agree =
      std::all_of(adapters.begin(), adapters.end(), [&](const auto& entry) { return entry.second.scaling == scaling; });
  for (auto& [name, factors] : adapters) {
    const int64_t more = rank - factors.rank();
    if (more > 0) factors.a = at::constant_pad_nd(factors.a, {0, 0, 0, more});
    if (more > 0) factors.b = at::constant_pad_nd(factors.b, {0, more});
    if (!agree) factors.b = factors.b * factors.scaling;
    if (!agree) factors.scaling = 1;
  }
  return adapters;
}

void save_peft_adapter(const fs::path& folder, const Joined& adapter, const Sites& sites, const PeftOptions& options) {
  const auto info = info_of(adapter, options.base_model);
  LastSites made(adapter, sites, info);
  const peft::SiteReader read = [&](const std::string& site) { return made.at(site); };
  const auto written = written_sites(made.adapted(), sites, options.layout, options.whole_layers);
  const auto content = options.layout == PeftLayout::kFused ? peft::fused_content : peft::per_expert_content;
  peft::write_folder(folder, content(written, sites, info, read));
}

void save_peft_adapter(const fs::path& folder, const AdapterState& adapters, const Sites& sites,
                       const PeftOptions& options) {
  const AdapterState no_change;
  const Joined adapter(no_change, adapters);
  if (adapter.rank() > 0) peft::require_one_scaling(adapters, peft_info(options.base_model, adapters));
  save_peft_adapter(folder, adapter, sites, options);
}

namespace peft {

FolderContent per_expert_content(const std::set<std::string>& written, const Sites& sites, const PeftInfo& info,
                                 const SiteReader& read) {
  FolderContent content;
  Sites own;
  for (const auto& name : written) own.insert(*sites.find(name));
  std::set<std::string> targets;
  for (const auto& [module, part] : parts_by_module(own)) {
    const auto& site = sites.at(part.site);
    content.pairs[module] = {{info.rank, site.in}, {site.out, info.rank}, [&read, part = part] {
                               const auto factors = read(part.site);
                               return LoraFactors{.a = expert_part(factors.a, part.expert),
                                                  .b = expert_part(factors.b, part.expert)};
                             }};
    targets.emplace(last_name(module));
  }
  content.config = adapter_config(info);
  content.config["target_modules"] = targets;
  return content;
}

}  // namespace peft
}  // namespace evenkeel::lora
