/// \file  Defines low-rank adapters as plain data, and the operations that all methods share. Nothing here uses
/// autograd, moves tensors between devices or draws random numbers except for initialisation. Dimension names: E
/// experts, r rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/format/config_table.h"
#include "base/format/safetensors.h"

namespace evenkeel::lora {

/// The factors of one site. In the shapes, `*` is empty for a dense linear and E for stacked experts.
struct LoraFactors {
  at::Tensor a{};        ///< [*, r, in]
  at::Tensor b{};        ///< [*, out, r]
  at::Tensor core{};     ///< [*, r, r]; undefined unless the method trains a core (Fed-SB)
  double scaling = 1.0;  ///< the update of the weight is scaling * B (core) A
  /// The ranks [E] int64 of the experts of a stack when they differ. Rows of A and columns of B beyond an expert's rank
  /// are zero and are not sent. Undefined: all experts have rank r.
  at::Tensor ranks{};
  /// Returns r. REQUIRES at least one defined factor.
  int64_t rank() const { return a.defined() ? a.size(-2) : b.defined() ? b.size(-1) : core.size(-1); }
};

/// A factor of a site: its name in files and messages, and its place in LoraFactors.
struct Factor {
  std::string_view name;
  at::Tensor LoraFactors::*tensor;
  /// True if rows, or columns, belong to ranks. Otherwise rows belong to outputs, and columns to inputs.
  bool ranked_rows, ranked_columns;
};
inline constexpr Factor kFactorA{"a", &LoraFactors::a, true, false}, kFactorB{"b", &LoraFactors::b, false, true},
    kFactorCore{"core", &LoraFactors::core, true, true};
/// The factors that are trained, sent and averaged.
inline constexpr std::array kFactors{kFactorA, kFactorB, kFactorCore};

/// Maps site names to factors, in name order. Examples of names: "model.layers.0.self_attn.q_proj",
/// "model.layers.0.mlp.gate", and "model.layers.0.mlp.experts.gate_proj" for the stacked experts of a layer.
/// `lora.targets` selects sites by the part after the last dot. Site describes the linear that a name refers to.
using AdapterState = std::map<std::string, LoraFactors>;

/// The function of a linear in its block. The model family sets it; it is never derived from a name.
enum class SiteRole { kAttention, kExpert, kMlp, kRouter };

/// Position of a linear in checkpoints that hold the experts of a layer in one tensor (transformers 5). PEFT adapts a
/// parameter there instead of a module. It is empty where PEFT adapts the linear as a module in such checkpoints too.
struct FusedPlace {
  std::string module{};         ///< the owner of the parameter: "model.layers.0.mlp.experts"
  std::string parameter{};      ///< as in PEFT's target_parameters: "mlp.experts.gate_up_proj"
  int64_t part = 0, parts = 1;  ///< the linear is share `part` of `parts` equal shares of the parameter's outputs
  int64_t order = 0;            ///< index of the parameter among the parameters of the module
  std::string stored{};         ///< name of the tensor in older checkpoints if it held all experts too; else empty
};

/// Position of a linear or stack in llama.cpp's format; empty when the model family does not give it.
struct GgufPlace {
  std::string tensor{};  ///< "blk.3.attn_q.weight"
  /// Number of heads, if the h output rows of each are in the order 0, h/2, 1, h/2 + 1, ...; 0: normal order.
  int64_t interleaved_heads = 0;
};

/// Describes one adaptable linear, or one stack of E of them.
struct Site {
  int64_t experts = 0;      ///< E, or 0 for a dense linear
  int64_t in = 0, out = 0;  ///< number of inputs and outputs
  std::string moe_layer{};  ///< key of the experts' routing statistics, e.g. "model.layers.0.mlp"; empty when dense
  SiteRole role = SiteRole::kMlp;
  std::vector<std::string> modules{};  ///< names of its linears in the checkpoint: one, or one per expert
  FusedPlace fused{};
  GgufPlace gguf{};
};
using Sites = std::map<std::string, Site>;

/// Returns the shape of matrices at a site: [rows, columns], for stacked experts [E, rows, columns].
std::vector<int64_t> stacked_shape(const Site& site, int64_t rows, int64_t columns);
/// Returns the shape of a factor at a site: [*, r, in], [*, out, r] or [*, r, r].
std::vector<int64_t> shape_of(const Site& site, const Factor& factor, int64_t rank);
/// Returns the number of values in all factors.
int64_t values_in(const AdapterState& adapters);

/// Returns a line "NAME EXPERTS IN OUT" per site. Processes of a run compare its digest.
std::string layout_text(const Sites& sites);

/// Selects the scale of a client whose rank r_c is smaller than the largest rank (docs/ambiguities.md, R21).
enum class LoraScaleMode {
  kFixedAlpha,  ///< s_c = alpha / r_c
  kConstScale,  ///< s = alpha / r_max for all
};

constexpr auto names(LoraScaleMode) {
  return std::array{config::EnumName<LoraScaleMode>{"fixed_alpha", LoraScaleMode::kFixedAlpha},
                    config::EnumName<LoraScaleMode>{"const_scale", LoraScaleMode::kConstScale}};
}

/// The settings of the scale s(r) of B A at rank r.
struct LoraScale {
  double alpha = 20;
  int64_t rank = 20;  ///< r_max, the divisor of const_scale at every rank
  LoraScaleMode mode = LoraScaleMode::kFixedAlpha;
  /// Returns s(r).
  double of(int64_t r) const;

  void visit(auto& field) {
    field("rank", rank, "largest LoRA rank, 1 or more");
    field("alpha", alpha, "numerator of the LoRA scale alpha / rank, > 0");
    field("lora_scale_mode", mode,
          "LoRA scale of a client of rank r_c: fixed_alpha (alpha / r_c) or const_scale (alpha / rank)");
  }
  void resolve(const config::Table& table) const {
    table.check_integer("rank", rank, 1, limits::kRank);
    table.check_above_zero("alpha", alpha);
  }
};

/// The low-rank terms added to one frozen weight: y = x (W + change + adapter)^T. A null pointer means no term. Does
/// not own the factors.
struct SiteFactors {
  const LoraFactors* adapter = nullptr;
  const LoraFactors* change = nullptr;  ///< frozen term that some methods add to the base; no core
};

/// Creates initial factors as PEFT does, in float32: A ~ U(-1/sqrt(in), 1/sqrt(in)), B = 0. The draw depends only on
/// the seed and the site name; each expert of a stack has its own draw. \throws kConfig for a rank below 1.
LoraFactors make_lora(const std::string& name, const Site& site, int64_t rank, double scaling, uint64_t seed);
/// Calls make_lora() for all sites.
AdapterState make_adapters(const Sites& sites, int64_t rank, double scaling, uint64_t seed);
/// Returns A = 0 and B = 0 of a rank, in float32.
LoraFactors zero_factors(const Site& site, int64_t rank, double scaling);

/// Returns scaling * B (core) A, [*, out, in], in the factors' dtype. It allocates the full matrix, so use it only in
/// tests, export and algebra.
at::Tensor delta_weight(const LoraFactors& factors);

/// Returns a deep copy that is detached from autograd. Only `ranks` is shared.
AdapterState clone(const AdapterState& adapters);

/// Returns `sent` with undefined A and B taken from `fixed` without copying. Sites that are only in `fixed` are left
/// out.
AdapterState completed(const AdapterState& sent, const AdapterState& fixed);

/// Returns true if no value is infinite or NaN, and for an undefined tensor.
bool is_finite(const at::Tensor& values);

/// Checks all factors. \throws kNumeric naming the site when a factor holds a value that is not finite. \param who  the
/// beginning of the message
void check_finite(const AdapterState& adapters, std::string_view who);

}  // namespace evenkeel::lora
