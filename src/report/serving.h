/// \file  Describes how other programs serve what `evenkeel export` writes: which formats each program reads, which
/// parts of the routing it loses, and which flags it needs. docs/serving.md gives the evidence for each entry.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/peft_programs.h"
#include "models/causal_lm.h"
#include "nn/moe/routing.h"

namespace evenkeel::report {

/// The formats of `evenkeel export`. kPeft: an adapter in PEFT's layout as adapter/ of a run has it
/// (lora::standard_layout()). kPeftFused: an adapter with all experts of a layer in one tensor. kMerged: the base with
/// the adapter merged into its weights. kGguf: an adapter for llama.cpp.
enum class ExportFormat { kPeft, kPeftFused, kMerged, kGguf };
constexpr auto names(ExportFormat) {
  return std::array{config::EnumName<ExportFormat>{"peft", ExportFormat::kPeft},
                    config::EnumName<ExportFormat>{"peft-fused", ExportFormat::kPeftFused},
                    config::EnumName<ExportFormat>{"merged", ExportFormat::kMerged},
                    config::EnumName<ExportFormat>{"gguf", ExportFormat::kGguf}};
}

/// Properties of an adapter and its base model that decide how programs serve it.
struct ServingFacts {
  models::GateRule gates;      ///< gating of the model family and of the base model's config.json
  nn::RouterOptions router;    ///< router options of the run's evaluations
  bool router_lora = false;    ///< routers are adapted
  bool experts = false;        ///< experts are adapted
  bool whole_layers = true;    ///< in each adapted layer all projections of the experts have factors in the file
  bool gate_with_up = true;    ///< gate_proj and up_proj have factors together, or neither has
  bool has_experts = false;    ///< the base model is a mixture of experts
  bool tied_experts = false;   ///< the base model has experts, and its head and embedding are one tensor
  bool llama_cpp = true;       ///< llama.cpp has an architecture for the base model
  bool sglang = true;          ///< SGLang has a model of the family
  bool expert_modules = true;  ///< each expert of the base model is a module of its own in checkpoints
  int64_t rank = 0;            ///< largest LoRA rank of the per-expert layout
  int64_t fused_rank = 0;      ///< largest LoRA rank of the fused layout
  /// Why a version of PEFT does not apply all factors of a layout (lora/peft_programs.h); empty: it applies all.
  std::map<std::pair<lora::PeftVersion, lora::PeftLayout>, std::string> not_in_peft{};
  std::string not_in_sglang{};  ///< why SGLang does not apply all factors of the per-expert layout; empty: it does
};
/// Collects the serving facts of an adapter.
/// \param base      the base model of the adapter
/// \param adapters  the adapted sites with their factors
/// \param router    router options of the run's evaluations
/// \param whole_layers  as lora::PeftOptions::whole_layers
ServingFacts serving_facts(const models::CausalLm& base, const lora::AdapterState& adapters,
                           const nn::RouterOptions& router, bool whole_layers = false);

/// Describes how one program serves one export.
struct Served {
  std::string_view program;
  bool was_run = false;  ///< true: found by running the program in a test; false: found in its source
  bool reads = false;    ///< the program reads the export
  /// Parts of the export that the program ignores; empty: its results are exact. If `reads` is false: the reason.
  std::vector<std::string> lost;
  std::vector<std::string> asks;  ///< flags and settings with which the program must be started
};
/// Lists how programs serve an export. For GGUF the list holds only llama.cpp.
std::vector<Served> serving(ExportFormat format, const ServingFacts& facts);

/// Formats an entry as "vLLM 0.33 (read in its source): exact; --max-lora-rank 32".
std::string serving_line(const Served& served);

}  // namespace evenkeel::report
