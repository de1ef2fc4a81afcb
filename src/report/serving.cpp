#include "report/serving.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/plain/json.h"

namespace evenkeel::report {
namespace {

enum class Reads { kNo, kYes, kWithFlags };

/// The features of a program, found by running it if `was_run`, otherwise by reading its source. All programs read
/// `merged` and, with one module per expert, `peft`.
struct Program {
  std::string_view name;
  bool was_run = false;
  std::optional<lora::PeftVersion> peft = {};  ///< set: lora/peft_programs.h says what it reads
  Reads fused = Reads::kNo, gguf = Reads::kNo;
  std::string_view refusal = {};  ///< what happens with the fused layout
  std::string_view asks = {};     ///< what the user must set for every adapter
  bool obeys_gate_key = false;    ///< false: it computes the family's gates whatever config.json says
  bool router_lora = true;
  bool takes_gate_alone = true;   ///< gate_proj without up_proj
  bool takes_part_layers = true;  ///< only some projections of the experts
  bool fixed_ranks = false;       ///< the largest rank must be in a list
  bool takes_tied = true;         ///< a sparse model whose head is its embedding
};
const std::array kPrograms{
    Program{.name = lora::program_name(lora::PeftVersion::k017),
            .was_run = true,
            .peft = lora::PeftVersion::k017,
            .fused = Reads::kYes,
            .obeys_gate_key = true},
    Program{.name = lora::program_name(lora::PeftVersion::k021),
            .was_run = true,
            .peft = lora::PeftVersion::k021,
            .fused = Reads::kYes,
            .obeys_gate_key = true},
    Program{.name = "vLLM 0.33", .fused = Reads::kWithFlags, .takes_part_layers = false, .fixed_ranks = true},
    Program{.name = "SGLang 0.5",
            .refusal = "does not read target_parameters",
            .asks = "--lora-strict-loading, or it may skip weights",
            .router_lora = false},
    Program{.name = "llama.cpp",
            .was_run = true,
            .gguf = Reads::kYes,
            .refusal = "its converter refuses it: unprocessed experts",
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

void add_routing(const Program& program, ExportFormat format, const ServingFacts& facts, Served& served) {
  if (!facts.router.modulation.empty()) served.lost.emplace_back("phi");
  if (facts.router.output_scale.defined()) served.lost.emplace_back("the rescaler of MoE outputs");
  const bool sum_to_one = nn::renormalises(facts.router.gate_norm, facts.gates.renormalise);
  if (!program.obeys_gate_key && facts.gates.servers && *facts.gates.servers != sum_to_one)
    served.lost.emplace_back(lost_gates(sum_to_one));
  const bool in_config = format == ExportFormat::kMerged && !facts.gates.key.empty();  // by the written config.json
  if (!program.obeys_gate_key || facts.gates.renormalise == sum_to_one || in_config) return;
  if (facts.gates.key.empty())
    served.lost.emplace_back(lost_gates(sum_to_one));
  else
    served.asks.push_back(
        concat("set ", facts.gates.key, " to ", sum_to_one ? "true" : "false", " in the base model's config.json"));
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
  if (facts.router_lora && !program.router_lora) served.lost.emplace_back("the router's adapter");
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
  std::set<std::string> adapted;
  for (const auto& [name, factors] : adapters) {
    adapted.insert(name);
    facts.rank = std::max(facts.rank, factors.rank());
  }
  add_layers(base, adapted, whole_layers, facts);
  add_peft(base, adapted, whole_layers, facts);
  const bool tied = OrderedJson::parse(base.config_json()).value("tie_word_embeddings", false);
  facts.tied_experts = tied && base.spec().num_experts > 0;
  facts.llama_cpp = !base.spec().gguf.architecture.empty();
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
