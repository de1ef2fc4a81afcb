/// \file  Adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors, one Linear per expert and
/// projection, which PEFT 0.17 and, by converting it, 0.21 read; or fused, which 0.21 writes. Names:
/// base_model.model.<module>.lora_A.weight [r, in], .lora_B.weight [out, r]; the modules of a site are those its family
/// gives it (lora/modules.h).
#pragma once

#include <filesystem>
#include <string>

#include "lora/adapter.h"
#include "lora/algebra.h"
#include "lora/peft_info.h"

namespace evenkeel {

/// What describes `adapters`, which share one rank and scaling; rank and alpha 1 when there are none.
PeftInfo peft_info(const std::string& base_model, const AdapterState& adapters);

/// Writes `folder` (made if missing), each file atomically. REQUIRES no core; scaling = alpha / rank for every site
/// (\throws kInternal otherwise: PEFT has one scaling per rank).
void save_peft_adapter(const std::filesystem::path& folder, const AdapterState& adapters, const Sites& sites,
                       const PeftInfo& info);

/// The same of what is joined while it is written: a few sites are in memory at a time. One scaling, that of the first.
void save_joined_peft_adapter(const std::filesystem::path& folder, const Joined& adapter, const Sites& sites,
                              const std::string& base_model);

/// The same adapter for models whose experts are fused tensors (transformers 5 + PEFT 0.21, `target_parameters`),
/// exactly: a parameter of several linears (gate_up_proj) has one A there, so their ranks are stacked, A = [A_gate;
/// A_up] and B = diag(B_gate, B_up), with rank_pattern and alpha_pattern multiplied. lora_A is [E * r, in], expert
/// slowest; lora_B is [out, r * E], expert fastest. The router is a parameter there too. Which linear lies where,
/// Site::fused says. REQUIRES as save_peft_adapter.
void save_fused_peft_adapter(const std::filesystem::path& folder, const AdapterState& adapters, const Sites& sites,
                             const PeftInfo& info);

/// The same updates at one rank and one scaling, as PEFT's files have them: lower ranks are padded with zeros, other
/// scalings fold into B. Untouched where they agree. REQUIRES no core.
AdapterState with_one_rank(AdapterState adapters);

/// `adapters` with a pair of zero factors, of the rank of those that are there, for every stack of experts that is not
/// adapted in a layer where another is: what asks for all experts and projections of a layer (vLLM; PEFT 0.21 on
/// transformers 5, for gate_proj and up_proj) takes it then. \param sites  all that the model has
AdapterState with_whole_layers(AdapterState adapters, const Sites& sites);

/// Reads a PEFT folder of either layout and stacks experts again. rank_pattern and alpha_pattern are matched as PEFT
/// does, in their order; rsLoRA is a scaling of alpha / sqrt(r). Where experts of a stack differ, lower ranks get zeros
/// and scalings fold into B. A fused gate_up_proj whose two linears share one A gives both that A. Strict:
/// \throws kCheckpoint on an unexpected or misshapen tensor, on half a pair of factors, on a key or value of the config
/// that is not known to mean plain LoRA, on sites the model lacks or the config's targets leave out. Warns of linears
/// that the targets name and the file lacks: they stay as the base model has them, as in PEFT.
AdapterState load_peft_adapter(const std::filesystem::path& folder, const Sites& sites);

}  // namespace evenkeel
