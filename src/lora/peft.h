/// \file  Reads and writes adapters in PEFT's format: adapter_config.json and adapter_model.safetensors. The plain
/// layout has one Linear per expert and projection; PEFT 0.17 reads it, and 0.21 converts it. PEFT 0.21 writes the
/// fused layout. A site is a linear layer that an adapter is added to, or a stack of one per expert (lora/adapter.h).
/// Tensor names are base_model.model.<module>.lora_A.weight [r, in] and .lora_B.weight [out, r]; the
/// model family gives the modules of a site (lora/modules.h).
#pragma once

#include <filesystem>
#include <string>

#include "lora/adapter.h"
#include "lora/algebra.h"
#include "lora/peft_info.h"

namespace evenkeel::lora {

/// Returns the config values of `adapters`, which must share one rank and scaling. Without adapters, rank and alpha are
/// 1.
PeftInfo peft_info(const std::string& base_model, const AdapterState& adapters);

/// Writes the plain layout into `folder`, which is created if missing. Each file is written atomically.
/// \throws kInternal for factors with a core (the matrix between B and A that Fed-SB trains), and if the scaling of a
/// site is not alpha / rank, because PEFT has one scaling per rank; kIo when a file cannot be written
void save_peft_adapter(const std::filesystem::path& folder, const AdapterState& adapters, const Sites& sites,
                       const PeftInfo& info);

/// Works as save_peft_adapter() for an adapter and a change of the base that are joined into one adapter (Joined).
/// Sites are joined one after the other while they are written, so that only a few are in memory.
/// \throws as save_peft_adapter(); kInternal if the sites differ in their scaling
void save_joined_peft_adapter(const std::filesystem::path& folder, const Joined& adapter, const Sites& sites,
                              const std::string& base_model);

/// Writes the fused layout (transformers 5 + PEFT 0.21, `target_parameters`) with exactly the same effect. A parameter
/// that holds several linears (gate_up_proj) has one A, so the ranks are stacked: A = [A_gate; A_up], B = diag(B_gate,
/// B_up), and rank_pattern and alpha_pattern hold rank and alpha times the number of linears. lora_A is [E * r, in]
/// with the expert as the slowest index, lora_B is [out, r * E] with the expert as the fastest. The router is a
/// parameter too. Site::fused gives the parameter of each linear. \throws as save_peft_adapter().
void save_fused_peft_adapter(const std::filesystem::path& folder, const AdapterState& adapters, const Sites& sites,
                             const PeftInfo& info);

/// Returns the same updates with one rank and one scaling, as PEFT's files need. Lower ranks are padded with zeros. If
/// scalings differ, all are multiplied into B and become 1. Adapters that already agree are unchanged. REQUIRES no
/// core.
AdapterState with_one_rank(AdapterState adapters);

/// A layer has three stacks of experts: gate_proj, up_proj and down_proj. Adds zero factors for a stack without an
/// adapter where another stack of the layer has one. Some readers
/// require all experts and projections of a layer: vLLM, and PEFT 0.21 on transformers 5 for gate_proj and up_proj.
/// \param sites  all sites of the model
AdapterState with_whole_layers(AdapterState adapters, const Sites& sites);

/// Reads a PEFT folder of either layout and stacks the experts. rank_pattern and alpha_pattern are matched as PEFT
/// does, in their order; rsLoRA gives a scaling of alpha / sqrt(r). If the experts of a stack differ, lower ranks are
/// padded with zeros and scalings are multiplied into B. If the two linears of a fused gate_up_proj share one A, both
/// get this A. If the targets name a linear that the file lacks, a warning is logged and the linear stays without an
/// adapter, as in PEFT.
/// \throws kCheckpoint on an unexpected tensor or shape, on a missing A or B of a pair, on config keys or values that
/// may not mean plain LoRA, on sites that the model lacks or the targets exclude, and on values that are not finite;
/// kIo when a file cannot be read.
AdapterState load_peft_adapter(const std::filesystem::path& folder, const Sites& sites);

}  // namespace evenkeel::lora
