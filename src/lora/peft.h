/// \file  Reads and writes adapters in PEFT's format: adapter_config.json and adapter_model.safetensors. Every adapter
/// folder of the program is written by save_peft_adapter(). A site is a linear layer that an adapter is added to, or a
/// stack of one per expert (lora/adapter.h). Tensor names are base_model.model.<module>.lora_A.weight [r, in] and
/// .lora_B.weight [out, r]; the model family gives the modules of a site (lora/modules.h).
/// lora/peft_programs.h says which versions of PEFT read a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "lora/adapter.h"
#include "lora/algebra.h"
#include "lora/peft_family.h"
#include "lora/peft_info.h"

namespace evenkeel::lora {

/// The layouts of an adapter folder. They differ for experts, routers, and dense linears beside experts.
enum class PeftLayout : uint8_t {
  /// One pair of factors per expert and projection, as in checkpoints with one module per expert.
  kPerExpert,
  /// `target_parameters` of PEFT 0.21: one pair per parameter of transformers 5 (Site::fused). A parameter that holds
  /// several linears (gate_up_proj) has one A, so the ranks are stacked: A = [A_gate; A_up], B = diag(B_gate, B_up),
  /// and rank_pattern and alpha_pattern hold rank and alpha times the number of linears. lora_A is [E * r, in] with the
  /// expert as the slowest index, lora_B is [out, r * E] with the expert as the fastest. All layers have factors of the
  /// same linears; zeros are added where a layer has none.
  kFused,
};

/// Returns the layout of adapter/ of a run, of the nodes' adapter and of `export`: per expert, or fused if the family's
/// checkpoints have no module per expert.
PeftLayout standard_layout(PeftFamily family);

/// The choices of save_peft_adapter().
struct PeftOptions {
  std::string base_model{};  ///< written as base_model_name_or_path; empty: written as null
  PeftLayout layout = PeftLayout::kPerExpert;
  /// True: in a layer with an adapted expert, projections without an adapter get zeros. Without them PEFT 0.21 and vLLM
  /// refuse adapters or leave factors out.
  bool whole_layers = true;
};

/// Returns the sites with factors in a folder: `adapted`, and those that get zeros.
/// \param sites  all sites of the model
std::set<std::string> written_sites(std::set<std::string> adapted, const Sites& sites, PeftLayout layout,
                                    bool whole_layers);

/// Returns the config values of `adapters`, which must share one rank and scaling. Without adapters, rank and alpha are
/// 1.
PeftInfo peft_info(const std::string& base_model, const AdapterState& adapters);

/// Writes an adapter folder, which is created if missing. Each file is written atomically. Factors are joined while
/// they are written, so that only a few sites are in memory; they are stored in float32.
/// \param sites  all sites of the model, or at least those of written_sites()
/// \throws kNumeric naming a tensor that holds a value that is not finite in float32, before that file exists;
/// kInternal if the sites differ in scaling, because the files have one; kIo.
void save_peft_adapter(const std::filesystem::path& folder, const Joined& adapter, const Sites& sites,
                       const PeftOptions& options);
/// Works as the other save_peft_adapter(), with factors that need no joining. \throws kInternal also for a core and if
/// the sites differ in rank (with_one_rank())
void save_peft_adapter(const std::filesystem::path& folder, const AdapterState& adapters, const Sites& sites,
                       const PeftOptions& options);

/// Returns the same updates with one rank and one scaling, as PEFT's files need. Lower ranks are padded with zeros. If
/// scalings differ, all are multiplied into B and become 1. Adapters that already agree are unchanged. REQUIRES no
/// core.
AdapterState with_one_rank(AdapterState adapters);

/// Reads a PEFT folder of either layout and stacks the experts. rank_pattern and alpha_pattern are matched as PEFT
/// does, in their order; rsLoRA gives a scaling of alpha / sqrt(r). If the experts of a stack differ, lower ranks are
/// padded with zeros and scalings are multiplied into B. If the two linears of a fused gate_up_proj share one A, both
/// get this A. If the targets name a linear that the file lacks, a warning is logged and the linear stays without an
/// adapter, as in PEFT. A site whose factors are all zero is left out, unless that leaves none: such factors have no
/// effect and no gradient.
/// \throws kCheckpoint on an unexpected tensor or shape, on a missing A or B of a pair, on config keys or values that
/// may not mean plain LoRA, on sites that the model lacks or the targets exclude, and on values that are not finite;
/// kIo when a file cannot be read.
AdapterState load_peft_adapter(const std::filesystem::path& folder, const Sites& sites);

}  // namespace evenkeel::lora
