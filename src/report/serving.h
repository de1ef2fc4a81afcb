/// \file  What other programs make of what `evenkeel export` writes: one row per program with what it reads, and per
/// export what is exact there, what is lost and which flag it takes. docs/serving.md says how each row was found out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/causal_lm.h"
#include "nn/moe/routing.h"

namespace evenkeel {

enum class ExportFormat { kPeft, kPeftFused, kMerged, kGguf };
constexpr auto names(ExportFormat) {
  return std::array{config::EnumName<ExportFormat>{"peft", ExportFormat::kPeft},
                    config::EnumName<ExportFormat>{"peft-fused", ExportFormat::kPeftFused},
                    config::EnumName<ExportFormat>{"merged", ExportFormat::kMerged},
                    config::EnumName<ExportFormat>{"gguf", ExportFormat::kGguf}};
}

/// What decides how an adapter is served.
struct ServingFacts {
  GateRule gates;        ///< the family's, with the base model's own flag
  RouterOptions router;  ///< of the run's evaluations
  bool router_lora = false;
  bool experts = false;        ///< experts are adapted
  bool whole_layers = true;    ///< with all their projections, or none
  bool gate_with_up = true;    ///< gate_proj and up_proj both, or neither
  bool tied_experts = false;   ///< a sparse base model whose head is its embedding
  bool llama_cpp = true;       ///< it has an architecture for the base model
  bool expert_modules = true;  ///< each expert of the base model is a module of its own in checkpoints
  int64_t rank = 0;            ///< r of the per-expert layout
  int64_t fused_rank = 0;      ///< the largest of the fused one
};
/// \param base  of which the adapter is. \param adapters  as they are written
ServingFacts serving_facts(const CausalLm& base, const AdapterState& adapters, const RouterOptions& router);

/// How one program takes one export.
struct Served {
  std::string_view program;
  bool was_run = false;           ///< by this project's tests; else read in its source
  bool reads = false;             ///< at all
  std::vector<std::string> lost;  ///< empty: exact
  std::vector<std::string> asks;  ///< flags and settings that it takes
};
/// Of GGUF, which other programs do not read: llama.cpp alone.
std::vector<Served> serving(ExportFormat format, const ServingFacts& facts);

/// "vLLM 0.33 (read in its source): exact; --max-lora-rank 32".
std::string serving_line(const Served& served);

}  // namespace evenkeel
