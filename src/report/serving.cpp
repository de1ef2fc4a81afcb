#include "report/serving.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/plain/json.h"

namespace evenkeel::report {
namespace {

enum class Reads { kNo, kYes, kWithFlags };
/// Where a program takes from whether gate weights sum to one: always config.json, or GateRule::servers.
enum class Gates { kByConfig, kByVllm, kByLlamaCpp };

/// The features of a program, found by running it if `was_run`, otherwise by reading its source. All programs read
/// `merged` and, with one module per expert, `peft`.
struct Program {
  std::string_view name;
  bool was_run = false;
  std::optional<lora::PeftVersion> peft = {};  ///< set: lora/peft_programs.h says what it reads
  Reads fused = Reads::kNo, gguf = Reads::kNo;
  std::string_view refusal = {};  ///< what happens with the fused layout
  std::string_view asks = {};     ///< what the user must set for every adapter
  Gates gates = Gates::kByConfig;
  bool is_sglang = false;         ///< ServingFacts::sglang and not_in_sglang say what it reads
  bool takes_gate_alone = true;   ///< gate_proj without up_proj
  bool takes_part_layers = true;  ///< only some projections of the experts
  bool fixed_ranks = false;       ///< the largest rank must be in a list
  bool takes_tied = true;         ///< a sparse model whose head is its embedding
};
const std::array kPrograms{Program{.name = lora::program_name(lora::PeftVersion::k017),
                                   .was_run = true,
                                   .peft = lora::PeftVersion::k017,
                                   .fused = Reads::kYes},
                           Program{.name = lora::program_name(lora::PeftVersion::k021),
                                   .was_run = true,
                                   .peft = lora::PeftVersion::k021,
                                   .fused = Reads::kYes},
                           Program{.name = "vLLM 0.33",
                                   .fused = Reads::kWithFlags,
                                   .gates = Gates::kByVllm,
                                   .takes_part_layers = false,
                                   .fixed_ranks = true},
                           Program{.name = "SGLang 0.5",
                                   .refusal = "does not read target_parameters",
                                   .asks = "--lora-strict-loading, or it may skip weights",
                                   .gates = Gates::kByVllm,
                                   .is_sglang = true},
                           Program{.name = "llama.cpp",
                                   .was_run = true,
                                   .gguf = Reads::kYes,
                                   .refusal = "its converter refuses it: unprocessed experts",
                                   .gates = Gates::kByLlamaCpp,
                                   .takes_gate_alone = false,
                                   .takes_part_layers = false,
                                   .takes_tied = false}};

constexpr std::array<int64_t, 9> kVllmRanks{1, 8, 16, 32, 64, 128, 256, 320, 512};
constexpr int64_t kVllmDefaultRank = 16;

Reads reads(const Program& program, ExportFormat format) {
  if (format == ExportFormat::kGguf) return program.gguf;
  return format == ExportFormat::kPeftFused ? program.fused : Reads::kYes;
}

/// Returns kPeftFused for an adapter in the fused layout, whichever of the two formats was asked for.
ExportFormat written_format(ExportFormat format, const ServingFacts& facts) {
  return format == ExportFormat::kPeft && !facts.expert_modules ? ExportFormat::kPeftFused : format;
}

/// Returns why PEFT does not apply all of an adapter; empty: it does, or no adapter is exported for PEFT.
std::string not_in_peft(const Program& program, ExportFormat format, const ServingFacts& facts) {
  if (!program.peft || (format != ExportFormat::kPeft && format != ExportFormat::kPeftFused)) return {};
  const auto layout = format == ExportFormat::kPeftFused ? lora::PeftLayout::kFused : lora::PeftLayout::kPerExpert;
  return facts.not_in_peft.at({*program.peft, layout});
}

std::string_view lost_gates(bool sum_to_one) {
  return sum_to_one ? "gates renormalised over the selected experts" : "gates that are not renormalised";
}

/// Returns the value of GateRule::renormalise that a program uses whatever config.json says; nullopt: it follows
/// config.json. SGLang does as vLLM for every family.
std::optional<bool> fixed_gates(const Program& program, const models::GateRule& gates) {
  if (program.gates == Gates::kByConfig || (program.gates == Gates::kByVllm && gates.only_llama_cpp)) return {};
  return gates.servers;
}

void add_gates(const Program& program, ExportFormat format, const ServingFacts& facts, Served& served) {
  const auto& gates = facts.gates;
  const bool sum_to_one = nn::renormalises(facts.router.gate_norm, gates.renormalise);
  const bool in_config = format == ExportFormat::kMerged && !gates.key.empty();  // by the written config.json
  const auto fixed = fixed_gates(program, gates);
  if (fixed.value_or(in_config ? sum_to_one : gates.renormalise) == sum_to_one) return;
  if (fixed || gates.key.empty())
    served.lost.emplace_back(lost_gates(sum_to_one));
  else
    served.asks.push_back(
        concat("set ", gates.key, " to ", sum_to_one ? "true" : "false", " in the base model's config.json"));
}

void add_routing(const Program& program, ExportFormat format, const ServingFacts& facts, Served& served) {
  if (!facts.router.modulation.empty()) served.lost.emplace_back("phi");
  if (facts.router.output_scale.defined()) served.lost.emplace_back("the rescaler of MoE outputs");
  add_gates(program, format, facts, served);
}

void refuse(Served& served, std::string why) {
  served.reads = false;
  served.lost.push_back(std::move(why));
}

void add_rank(int64_t rank, Served& served) {
  const auto* most = std::lower_bound(kVllmRanks.begin(), kVllmRanks.end(), rank);
  if (most == kVllmRanks.end())
    refuse(served, concat("rank ", rank, " is above ", kVllmRanks.back()));
  else if (rank > kVllmDefaultRank)
    served.asks.push_back(concat("--max-lora-rank ", *most));
}

void add_adapter(const Program& program, ExportFormat format, const ServingFacts& facts, Served& served) {
  if (!program.asks.empty()) served.asks.emplace_back(program.asks);
  if (program.is_sglang && !facts.not_in_sglang.empty()) refuse(served, facts.not_in_sglang);
  const bool fused = format == ExportFormat::kPeftFused;
  if (format != ExportFormat::kGguf && !program.peft) {
    if (!facts.gate_with_up && !program.takes_gate_alone && !fused)
      refuse(served, "gate_proj or up_proj alone; export without --no-pad");
    else if (!facts.whole_layers && !program.takes_part_layers)
      refuse(served, "experts without some projections; export without --no-pad");
  }
  if (program.fixed_ranks) add_rank(fused ? facts.fused_rank : facts.rank, served);
}

Served serve(const Program& program, ExportFormat asked, const ServingFacts& facts) {
  Served served{.program = program.name, .was_run = program.was_run, .reads = true, .lost = {}, .asks = {}};
  const auto format = written_format(asked, facts);
  const bool one_layout = format == ExportFormat::kPeftFused && !facts.experts && !facts.router_lora;
  const auto how = one_layout ? Reads::kYes : reads(program, format);
  if (auto why = not_in_peft(program, format, facts); !why.empty())
    refuse(served, std::move(why));
  else if (how == Reads::kNo)
    refuse(served, std::string(program.refusal));
  else if (format == ExportFormat::kPeftFused && !facts.expert_modules && !program.was_run)
    refuse(served, "not tried with a family whose checkpoints hold the experts of a layer in one tensor");
  else if (!program.takes_tied && facts.tied_experts)
    refuse(served, "the head of this base model is its embedding");
  else if (!program.takes_tied && !facts.llama_cpp)
    refuse(served, "no architecture for this base model");
  else if (program.is_sglang && !facts.sglang)
    refuse(served, "no model of this family; not tried through transformers");
  if (!served.reads) return served;
  if (how == Reads::kWithFlags)
    served.asks.emplace_back("--enable-mixed-moe-lora-format and \"is_3d_lora_weight\": true in its LoRA entry");
  if (format != ExportFormat::kMerged) add_adapter(program, format, facts, served);
  if (served.reads) add_routing(program, format, facts, served);
  return served;
}

/// Collects what the experts and routers with factors in the file tell.
void add_layers(const models::CausalLm& base, const std::set<std::string>& adapted, bool whole_layers,
                ServingFacts& facts) {
  const auto& sites = base.all_sites();
  const auto written = lora::written_sites(adapted, sites, lora::PeftLayout::kPerExpert, whole_layers);
  // Number of linears with factors of each parameter, by module and order.
  std::map<std::string, std::map<int64_t, int64_t>> parts;
  int64_t most = 1;
  for (const auto& name : written) {
    const auto& site = sites.at(name);
    const bool expert = site.role == lora::SiteRole::kExpert;
    facts.router_lora |= site.role == lora::SiteRole::kRouter;
    facts.experts |= expert;
    if (expert) most = std::max(most, ++parts[site.fused.module][site.fused.order]);
  }
  facts.fused_rank = most * facts.rank;
  for (const auto& [name, site] : sites) {
    const auto layer = parts.find(site.fused.module);
    if (site.role != lora::SiteRole::kExpert || layer == parts.end() || written.contains(name)) continue;
    facts.whole_layers = false;
    if (layer->second.contains(site.fused.order)) facts.gate_with_up = false;
  }
}

/// A linear layer that SGLang adapts. It stacks some with others of their block (lora.py: normalize_qkv_proj(),
/// normalize_gate_up_proj(), normalize_fused_qkv_a_proj()), and refuses their factors if those of `beside` are missing.
struct SglangTarget {
  std::string_view name, beside = {};
};
constexpr auto kSglangTargets = std::to_array<SglangTarget>({{"q_proj", "v_proj"},
                                                             {"k_proj", "q_proj"},
                                                             {"v_proj", "q_proj"},
                                                             {"qkv_proj"},
                                                             {"q_a_proj", "kv_a_proj_with_mqa"},
                                                             {"kv_a_proj_with_mqa", "q_a_proj"},
                                                             {"q_b_proj"},
                                                             {"kv_b_proj"},
                                                             {"o_proj"},
                                                             {"gate_proj"},
                                                             {"up_proj", "gate_proj"},
                                                             {"gate_up_proj"},
                                                             {"down_proj"}});

/// Returns why SGLang refuses an adapter with factors of this linear layer; empty: it takes them.
std::string refused_in_sglang(const std::string& name, const lora::Site& site, const std::set<std::string>& written) {
  if (site.modules.empty()) return {};  // its experts are refused with the fused layout
  const std::string_view module = site.modules.front();
  const auto last = module.substr(module.rfind('.') + 1);
  const auto* target = std::find_if(kSglangTargets.begin(), kSglangTargets.end(),
                                    [&](const SglangTarget& known) { return known.name == last; });
  if (target == kSglangTargets.end())
    return concat("refuses adapters of ", site.role == lora::SiteRole::kRouter ? "routers" : last);
  const auto block = name.substr(0, name.rfind('.') + 1);
  if (target->beside.empty() || written.contains(concat(block, target->beside))) return {};
  return concat("refuses ", last, " without ", target->beside);
}

/// Returns ServingFacts::not_in_sglang. The experts of a base model are adapted only if gate_proj and down_proj are
/// among the adapted modules (lora_manager.py, init_lora_modules()).
std::string not_in_sglang(const lora::Sites& sites, const std::set<std::string>& written) {
  bool experts = false;
  std::set<std::string> lasts;
  for (const auto& name : written) {
    const auto& site = sites.at(name);
    if (auto why = refused_in_sglang(name, site, written); !why.empty()) return why;
    experts |= site.role == lora::SiteRole::kExpert;
    lasts.insert(name.substr(name.rfind('.') + 1));
  }
  if (!experts || (lasts.contains("gate_proj") && lasts.contains("down_proj"))) return {};
  return "leaves out experts without gate_proj or down_proj; export without --no-pad";
}

void add_peft(const models::CausalLm& base, const std::set<std::string>& adapted, bool whole_layers,
              ServingFacts& facts) {
  const auto family = base.spec().peft;
  facts.expert_modules = lora::standard_layout(family) == lora::PeftLayout::kPerExpert;
  for (const auto layout : {lora::PeftLayout::kPerExpert, lora::PeftLayout::kFused}) {
    const lora::PeftFolder folder{family, layout, lora::written_sites(adapted, base.all_sites(), layout, whole_layers)};
    for (const auto version : {lora::PeftVersion::k017, lora::PeftVersion::k021})
      facts.not_in_peft[{version, layout}] = lora::why_not_whole(version, folder, base.all_sites());
  }
}

}  // namespace

ServingFacts serving_facts(const models::CausalLm& base, const lora::AdapterState& adapters,
                           const nn::RouterOptions& router, bool whole_layers) {
  ServingFacts facts{.gates = base.spec().gates, .router = router};
  facts.has_experts = base.spec().num_experts > 0;
  if (!facts.has_experts) facts.router = {};  // it has no gates
  std::set<std::string> adapted;
  for (const auto& [name, factors] : adapters) {
    adapted.insert(name);
    facts.rank = std::max(facts.rank, factors.rank());
  }
  add_layers(base, adapted, whole_layers, facts);
  add_peft(base, adapted, whole_layers, facts);
  const auto& sites = base.all_sites();
  facts.not_in_sglang =
      not_in_sglang(sites, lora::written_sites(adapted, sites, lora::PeftLayout::kPerExpert, whole_layers));
  const bool tied = OrderedJson::parse(base.config_json()).value("tie_word_embeddings", false);
  facts.tied_experts = tied && facts.has_experts;
  facts.llama_cpp = !base.spec().gguf.architecture.empty();
  facts.sglang = base.spec().family != "flex_olmo";
  return facts;
}

std::vector<Served> serving(ExportFormat format, const ServingFacts& facts) {
  std::vector<Served> all;
  for (const auto& program : kPrograms)
    if (reads(program, format) != Reads::kNo || format != ExportFormat::kGguf)
      all.push_back(serve(program, format, facts));
  return all;
}

std::string serving_line(const Served& served) {
  if (!served.reads) return lora::not_readable(served.program, served.was_run, join(served.lost));
  std::string text = concat(served.program, served.was_run ? " (run): " : " (read in its source): ");
  if (served.lost.empty())
    text += "exact";
  else
    text += concat("without ", join(served.lost));
  if (!served.asks.empty()) text += concat("; ", join(served.asks));
  return text;
}

}  // namespace evenkeel::report
