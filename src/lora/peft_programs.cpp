#include "lora/peft_programs.h"

#include <algorithm>
#include <array>

#include "base/plain/text.h"
#include "lora/peft_files.h"

namespace evenkeel::lora {
namespace {

constexpr std::string_view kOtherResults = "loads it without a word and computes something else";
constexpr std::string_view kFindsNothing = "refuses it: none of its target_parameters is there";
constexpr std::string_view kHalf = "gate_proj or up_proj alone; export without --no-pad";
constexpr std::string_view kNoDown =
    "leaves out gate_proj and up_proj where no layer has down_proj; export without --no-pad";
constexpr std::string_view kDenseBlocks = "leaves out the dense feed-forward blocks; export peft-fused";
constexpr std::string_view kRouters = "refuses it: routers are no linear layers there";
constexpr std::string_view kSharedGate =
    "refuses it: it takes the gate of the shared expert for a router; export peft-fused";
constexpr std::string_view kUntriedFamily = "not tried with this family";

/// Returns the projections of the experts of one layer that have factors in the folder: gate_proj, up_proj, down_proj.
using Projections = std::set<std::string_view>;

std::map<std::string, Projections> projections_by_layer(const PeftFolder& folder, const Sites& sites) {
  std::map<std::string, Projections> layers;
  for (const auto& name : folder.sites)
    if (const auto& site = sites.at(name); site.role == SiteRole::kExpert)
      layers[site.moe_layer].insert(peft::last_name(name));
  return layers;
}

bool is_half(const Projections& layer) { return layer.contains("gate_proj") != layer.contains("up_proj"); }

bool has_role(const PeftFolder& folder, const Sites& sites, SiteRole role) {
  return std::any_of(folder.sites.begin(), folder.sites.end(),
                     [&](const auto& name) { return sites.at(name).role == role; });
}

/// transformers 4.57 has one Linear per expert where the checkpoint has, and names routers as the checkpoint does.
std::string_view in_017(const PeftFolder& folder, const Sites& sites) {
  if (folder.layout == PeftLayout::kPerExpert)
    return folder.family == PeftFamily::kConvertedRouters && has_role(folder, sites, SiteRole::kRouter)
               ? kRouters
               : std::string_view();
  const auto is_lost = [&](const std::string& name) {
    const auto& site = sites.at(name);
    return site.role == SiteRole::kExpert ||
           (site.role == SiteRole::kRouter && site.fused.module != site.modules.front());
  };
  const auto lost = std::count_if(folder.sites.begin(), folder.sites.end(), is_lost);
  if (lost == 0) return {};
  return lost == static_cast<int64_t>(folder.sites.size()) ? kFindsNothing : kOtherResults;
}

/// PEFT 0.21 looks for routers by the end of a name, "gate.weight", which the gate of a shared expert has too.
bool has_shared_gate(const Sites& sites) {
  return std::any_of(sites.begin(), sites.end(), [](const auto& entry) {
    const auto& modules = entry.second.modules;
    return !modules.empty() && modules.front().find(".shared_expert.") != std::string::npos;
  });
}

/// PEFT 0.21 joins gate_proj and up_proj while it loads one module per expert. It places the result as if down_proj
/// were adapted too, and takes dense linears of the same names for experts.
std::string_view in_021(const PeftFolder& folder, const Sites& sites) {
  if (folder.layout == PeftLayout::kFused || !is_converted(folder.family)) return {};
  if (has_role(folder, sites, SiteRole::kRouter) && has_shared_gate(sites)) return kSharedGate;
  Projections all;
  for (const auto& [layer, projections] : projections_by_layer(folder, sites)) {
    if (is_half(projections)) return kHalf;
    all.insert(projections.begin(), projections.end());
  }
  if (has_role(folder, sites, SiteRole::kMlp)) return kDenseBlocks;
  return all.contains("gate_proj") && !all.contains("down_proj") ? kNoDown : std::string_view();
}

}  // namespace

std::string_view program_name(PeftVersion version) {
  return version == PeftVersion::k017 ? "transformers 4.57 + PEFT 0.17" : "transformers 5 + PEFT 0.21";
}

std::string why_not_whole(PeftVersion version, const PeftFolder& folder, const Sites& sites) {
  if (folder.family == PeftFamily::kUntried) return std::string(kUntriedFamily);
  return std::string(version == PeftVersion::k017 ? in_017(folder, sites) : in_021(folder, sites));
}

std::string not_readable(std::string_view program, bool was_run, std::string_view reason) {
  return concat(program, was_run ? " (run)" : " (read in its source)", ": not readable there (", reason, ")");
}

std::vector<std::string> not_readable_in_peft(PeftFamily family, const std::set<std::string>& adapted,
                                              const Sites& sites) {
  if (family == PeftFamily::kUntried) return {};
  const auto layout = standard_layout(family);
  const PeftFolder folder{family, layout, written_sites(adapted, sites, layout, true)};
  std::vector<std::string> lines;
  for (const auto version : {PeftVersion::k017, PeftVersion::k021})
    if (const auto why = why_not_whole(version, folder, sites); !why.empty())
      lines.push_back(not_readable(program_name(version), true, why));
  return lines;
}

}  // namespace evenkeel::lora
