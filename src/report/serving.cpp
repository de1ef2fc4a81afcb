#include "report/serving.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace evenkeel {
namespace {

enum class Reads { kNo, kYes, kWithFlags };

/// One row per program. Found by running it where `was_run`, else by reading its release.
struct Program {
  std::string_view name;
  bool was_run;
  Reads peft, fused, merged, gguf;
  std::string_view refusal;  ///< of the fused layout: what happens
  bool obeys_gate_key;       ///< else it computes the family's gates whatever config.json says
  bool router_lora;
  bool takes_gate_alone;       ///< gate_proj without up_proj
  bool takes_part_layers;      ///< some projections of the experts
  bool fixed_ranks;            ///< the largest rank is one of a list
  bool takes_tied;             ///< a sparse model whose head is its embedding
  std::string_view asks = {};  ///< of every adapter
};
constexpr std::array kPrograms{
    Program{"transformers 4.57 + PEFT 0.17", true, Reads::kYes, Reads::kNo, Reads::kYes, Reads::kNo,
            "loads it without a word and computes something else", true, true, true, true, false, true},
    Program{"transformers 5 + PEFT 0.21", true, Reads::kYes, Reads::kYes, Reads::kYes, Reads::kNo, "", true, true,
            false, true, false, true},
    Program{"vLLM 0.33", false, Reads::kYes, Reads::kWithFlags, Reads::kYes, Reads::kNo, "", false, true, true, false,
            true, true},
    Program{"SGLang 0.5", false, Reads::kYes, Reads::kNo, Reads::kYes, Reads::kNo, "does not read target_parameters",
            false, false, true, true, false, true, "--lora-strict-loading, or it may skip weights"},
    Program{"llama.cpp", true, Reads::kYes, Reads::kNo, Reads::kYes, Reads::kYes,
            "its converter refuses it: unprocessed experts", false, true, false, false, false, false}};

constexpr std::array<int64_t, 9> kVllmRanks{1, 8, 16, 32, 64, 128, 256, 320, 512};

Reads reads(const Program& program, ExportFormat format) {
  if (format == ExportFormat::kMerged) return program.merged;
  if (format == ExportFormat::kGguf) return program.gguf;
  return format == ExportFormat::kPeft ? program.peft : program.fused;
}

void add_routing(const Program& program, ExportFormat format, const ServingFacts& facts, Served& served) {
  if (!facts.router.modulation.empty()) served.lost.emplace_back("phi");
  if (facts.router.output_scale.defined()) served.lost.emplace_back("the rescaler of MoE outputs");
  const bool sum_to_one = renormalises(facts.router.gate_norm, facts.gates.renormalise);
  if (!program.obeys_gate_key && facts.gates.servers && *facts.gates.servers != sum_to_one)
    served.lost.emplace_back(sum_to_one ? "gates renormalised over the selected experts"
                                        : "gates that are not renormalised");
  if (program.obeys_gate_key && format != ExportFormat::kMerged && facts.gates.renormalise != sum_to_one)
    served.asks.push_back(
        concat("set ", facts.gates.key, " to ", sum_to_one ? "true" : "false", " in the base model's config.json"));
}

void add_adapter(const Program& program, ExportFormat format, const ServingFacts& facts, Served& served) {
  if (format == ExportFormat::kMerged || format == ExportFormat::kGguf) return;
  if (!program.asks.empty()) served.asks.emplace_back(program.asks);
  if (facts.router_lora && !program.router_lora) served.lost.emplace_back("the router's adapter");
  const bool fused = format == ExportFormat::kPeftFused;
  if (facts.experts && !facts.gate_with_up && !program.takes_gate_alone && !fused)
    served.reads = false, served.lost.emplace_back("refused: gate_proj or up_proj alone; export without --no-pad");
  else if (facts.experts && !facts.whole_layers && !program.takes_part_layers)
    served.reads = false,
    served.lost.emplace_back("refused: experts without some projections; export without --no-pad");
  if (!program.fixed_ranks) return;
  const int64_t rank = fused ? facts.fused_rank : facts.rank;
  const auto* most = std::lower_bound(kVllmRanks.begin(), kVllmRanks.end(), rank);
  if (most == kVllmRanks.end())
    served.reads = false, served.lost.push_back(concat("refused: rank ", rank, " is above ", kVllmRanks.back()));
  else if (rank > 16)  // its default
    served.asks.push_back(concat("--max-lora-rank ", *most));
}

Served serve(const Program& program, ExportFormat format, const ServingFacts& facts) {
  Served served{.program = program.name, .was_run = program.was_run, .reads = true, .lost = {}, .asks = {}};
  const bool needs_reading = format != ExportFormat::kPeftFused || facts.experts || facts.router_lora;
  const auto how = needs_reading ? reads(program, format) : Reads::kYes;
  if (how == Reads::kNo) {
    served.reads = false;
    served.lost.emplace_back(program.refusal);
    return served;
  }
  if (format == ExportFormat::kGguf && !facts.in_llama_cpp) {
    served.reads = false;
    served.lost.emplace_back("it has no architecture that computes the base model");
    return served;
  }
  if (facts.tied_embeddings && facts.gates.servers && !program.takes_tied) {
    served.reads = false;
    served.lost.emplace_back("refused: the base model's head is its embedding");
    return served;
  }
  if (how == Reads::kWithFlags)
    served.asks.emplace_back("--enable-mixed-moe-lora-format and \"is_3d_lora_weight\": true in its LoRA entry");
  add_adapter(program, format, facts, served);
  if (served.reads) add_routing(program, format, facts, served);
  return served;
}

}  // namespace

ServingFacts serving_facts(const CausalLm& base, const AdapterState& adapters, const RouterOptions& router) {
  ServingFacts facts{.gates = base.spec().gates, .router = router};
  facts.in_llama_cpp = !base.spec().gguf.architecture.empty();
  const auto& sites = base.all_sites();
  std::map<std::string, std::map<int64_t, int64_t>> parts;  // of each parameter, by module and order: adapted linears
  for (const auto& [name, factors] : adapters) {
    const auto& site = sites.at(name);
    facts.router_lora |= site.role == SiteRole::kRouter;
    facts.rank = std::max(facts.rank, factors.rank());
    int64_t fused = 1;
    if (site.role == SiteRole::kExpert) {
      facts.experts = true;
      fused = ++parts[site.fused.module][site.fused.order];
    }
    facts.fused_rank = std::max(facts.fused_rank, fused * factors.rank());
  }
  for (const auto& [name, site] : sites) {
    const auto layer = parts.find(site.fused.module);
    if (site.role != SiteRole::kExpert || layer == parts.end() || adapters.contains(name)) continue;
    facts.whole_layers = false;
    if (layer->second.contains(site.fused.order)) facts.gate_with_up = false;
  }
  facts.tied_embeddings = OrderedJson::parse(base.config_json()).value("tie_word_embeddings", false);
  return facts;
}

std::vector<Served> serving(ExportFormat format, const ServingFacts& facts) {
  std::vector<Served> all;
  for (const auto& program : kPrograms)
    if (format != ExportFormat::kGguf || program.gguf != Reads::kNo) all.push_back(serve(program, format, facts));
  return all;
}

std::string serving_line(const Served& served) {
  std::string text = concat(served.program, served.was_run ? " (run): " : " (read in its source): ");
  if (!served.reads)
    text += concat("not readable there (", join(served.lost), ")");
  else if (served.lost.empty())
    text += "exact";
  else
    text += concat("without ", join(served.lost));
  if (served.reads && !served.asks.empty()) text += concat("; ", join(served.asks));
  return text;
}

}  // namespace evenkeel
