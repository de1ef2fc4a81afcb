/// \file  Low-rank adapters as plain data, and the algebra the methods share. No autograd, no randomness beyond
/// initialisation, no device moves. Dimension names: E experts, R rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/format/config_table.h"
#include "base/format/safetensors.h"

namespace evenkeel {

/// Factors of one site. `*` is empty for a dense linear, or E for stacked experts.
struct LoraFactors {
  at::Tensor a{};        ///< [*, r, in]
  at::Tensor b{};        ///< [*, out, r]
  at::Tensor core{};     ///< [*, r, r]; undefined unless the method trains a core (Fed-SB)
  double scaling = 1.0;  ///< delta W = scaling * B (core) A
  at::Tensor ranks{};  ///< [E] int64 when the experts of a stack differ in rank: rows and columns beyond are zero, and
                       ///< do not travel. Undefined: r for all
  /// r, from whichever factor is there.
  int64_t rank() const { return a.defined() ? a.size(-2) : b.defined() ? b.size(-1) : core.size(-1); }
};

/// Site name -> factors, in name order, e.g. "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.gate", and for the
/// stacked experts of a layer "model.layers.0.mlp.experts.gate_proj". What comes after the last dot is the target that
/// `lora.targets` names. Which modules of a checkpoint a site stands for, and what it is for, Site says.
using AdapterState = std::map<std::string, LoraFactors>;

/// What a linear does in its block. Only the model's family knows; nobody reads it out of a name.
enum class SiteRole { kAttention, kExpert, kMlp, kRouter };

/// Where a linear lies in checkpoints that hold the experts of a layer in one tensor (transformers 5), and where PEFT
/// therefore adapts a parameter instead of a module. Nothing in it: the linear is a module there as well.
struct FusedPlace {
  std::string module{};         ///< the owner of the parameter: "model.layers.0.mlp.experts"
  std::string parameter{};      ///< as in PEFT's target_parameters: "mlp.experts.gate_up_proj"
  int64_t part = 0, parts = 1;  ///< which of how many equal shares of the parameter's outputs the linear is
  int64_t order = 0;            ///< of the parameter among those of the module
  std::string stored{};         ///< the tensor in checkpoints of before, where that held all experts too; else empty
};

/// Where llama.cpp holds a linear or a stack. Nothing in it: its family does not say.
struct GgufPlace {
  std::string tensor{};  ///< "blk.3.attn_q.weight"
  int64_t interleaved_heads =
      0;  ///< heads whose output rows it holds as (0, h/2, 1, h/2 + 1, ...); 0: rows as they are
};

/// One adaptable linear, or one stack of E of them.
struct Site {
  int64_t experts = 0;  ///< E, or 0 for a dense linear
  int64_t in = 0, out = 0;
  std::string moe_layer{};  ///< key of these experts' routing statistics, e.g. "model.layers.0.mlp"; empty when dense
  SiteRole role = SiteRole::kMlp;
  std::vector<std::string> modules{};  ///< the checkpoint's linears it stands for: one, or one per expert
  FusedPlace fused{};
  GgufPlace gguf{};
};
using Sites = std::map<std::string, Site>;

/// How alpha / r is read when clients have unequal ranks (docs/ambiguities.md, R21).
enum class LoraScaleMode {
  kFixedAlpha,  ///< s_c = alpha / r_c
  kConstScale,  ///< s = alpha / r_max for all
};

constexpr auto names(LoraScaleMode) {
  return std::array{config::EnumName<LoraScaleMode>{"fixed_alpha", LoraScaleMode::kFixedAlpha},
                    config::EnumName<LoraScaleMode>{"const_scale", LoraScaleMode::kConstScale}};
}

/// s(r), the factor of B A at rank r.
struct LoraScale {
  double alpha = 20;
  int64_t rank = 20;  ///< r_max, what const_scale divides by at every rank
  LoraScaleMode mode = LoraScaleMode::kFixedAlpha;
  double of(int64_t r) const;

  void visit(auto& field) {
    field("rank", rank, "largest LoRA rank, 1 or more");
    field("alpha", alpha, "numerator of the LoRA scale alpha / rank, > 0");
    field("lora_scale_mode", mode, "scale of rank r_c: fixed_alpha is alpha / r_c, const_scale alpha / rank");
  }
  void resolve(const config::Table& table) const {
    table.check_integer("rank", rank, 1, limits::kRank);
    table.check_above_zero("alpha", alpha);
  }
};

/// What stands beside one frozen weight: y = x (W + change + adapter)^T. Null where there is none.
struct SiteFactors {
  const LoraFactors* adapter = nullptr;
  const LoraFactors* change = nullptr;  ///< what base-changing methods have merged so far: frozen, no core
};

/// Fresh factors as PEFT makes them: A ~ U(-1/sqrt(in), 1/sqrt(in)), B = 0. The draw of a site depends on (seed, site
/// name) alone; expert e of a stack has its own draw. float32.
LoraFactors make_lora(const std::string& name, const Site& site, int64_t rank, double scaling, uint64_t seed);
AdapterState make_adapters(const Sites& sites, int64_t rank, double scaling, uint64_t seed);

/// scaling * B (core) A, [*, out, in], in the factors' dtype. Materialises the product: for tests, export and algebra
/// only.
at::Tensor delta_weight(const LoraFactors& factors);

/// Deep copy, detached.
AdapterState clone(const AdapterState& adapters);

/// `sent` with the factors that did not travel taken from `fixed`, not copied. Sites that only `fixed` has are left
/// out.
AdapterState completed(const AdapterState& sent, const AdapterState& fixed);

/// \throws kNumeric naming the site when a factor holds a value that is not finite; `who` opens the message.
void check_finite(const AdapterState& adapters, std::string_view who);

}  // namespace evenkeel
