/// \file  What the leaves of a decoder are made of: linears that an adapter may stand beside, and norms. A model under
/// construction is a ModelBuilder, into which every leaf enters what it takes: tensors, sites and cost are therefore
/// those of what was built. Dimension names: R rows, D width, I in, O out.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "models/causal_lm.h"
#include "models/checkpoint.h"
#include "nn/attention/aten_cached_attention.h"
#include "nn/attention/aten_layout.h"
#include "nn/attention/attention.h"

namespace evenkeel {

/// A model under construction.
class ModelBuilder {
 public:
  ModelBuilder(ModelSpec model, TensorSource& from) : spec(std::move(model)), source_(from) {}

  /// A tensor of the checkpoint, listed among `parameters`. \throws as TensorSource::take()
  at::Tensor take(const std::string& name, at::IntArrayRef sizes);
  /// The same of a matrix that tokens are multiplied with.
  FrozenWeight take_weight(const std::string& name, at::IntArrayRef sizes);
  /// The same, copied to where it belongs in a stack of several: [E, *, *], of so many rows, made when the first is
  /// taken. \param stack  its matrix `index`, from row `first` on; \return that place
  FrozenWeight take_into(at::Tensor& stack_ERI, int64_t experts, int64_t rows, int64_t index, int64_t first,
                         const std::string& name, at::IntArrayRef sizes);
  Engine engine() const { return source_.engine(); }
  /// Multiply-adds of the frozen linears of that role, per token; of experts: per selected one.
  double& work_of(SiteRole role);
  /// Where llama.cpp holds a linear of the layer under construction. \param name  "attn_q"; \param heads  of queries or
  /// keys, else 0
  GgufPlace gguf_place(std::string_view name, int64_t heads = 0) const;

  ModelSpec spec;
  int64_t layer = 0;  ///< under construction
  Sites sites;
  TensorMap parameters;

 private:
  void list(const std::string& name, const at::Tensor& tensor);

  TensorSource& source_;
};

/// One layer's part of a forward.
struct LayerPass {
  const PackedBatch& batch;
  const RotaryTable& rotary;  ///< of the batch's rows
  const ForwardOptions& options;
  const aten::Layout* layout = nullptr;  ///< of the batch; engine aten alone
  aten::CacheWindow* window = nullptr;   ///< of the cache; engine aten alone
  at::Tensor queries_N{};                ///< the rows that are asked for, one per sequence: its last; undefined: all
  /// Those rows of `x`.
  at::Tensor select_query_rows(const at::Tensor& x) const {
    return queries_N.defined() ? x.index_select(0, queries_N) : x;
  }
};

struct LinearSpec {
  std::string site;    ///< empty: nothing may stand beside it
  std::string module;  ///< in the checkpoint
  int64_t in = 0, out = 0;
  SiteRole role = SiteRole::kMlp;
  bool bias = false;
  FusedPlace fused{};
  GgufPlace gguf{};
};

/// y = x W^T + what stands beside it (+ b).
class FrozenLinear {
 public:
  FrozenLinear() = default;
  FrozenLinear(const LinearSpec& spec, ModelBuilder& model);
  at::Tensor operator()(const at::Tensor& x_TI, const ForwardOptions& options) const;

 private:
  std::string site_;
  bool exact_ = false;  // scores and gates, which choose: in the activations' type whatever is inside blocks
  FrozenWeight weight_;
  at::Tensor bias_O_;
};

/// The factors of `options` beside a site.
SiteFactors factors_at(const ForwardOptions& options, const std::string& site);

enum class NormKind {
  kRms,        ///< with a weight
  kLayerNorm,  ///< without parameters
};
struct NormSpec {
  NormKind kind = NormKind::kRms;
  double eps = 1e-5;
};

class Norm {
 public:
  Norm() = default;
  /// \param module  of its weight, where it has one
  Norm(const NormSpec& spec, const std::string& module, int64_t width, ModelBuilder& model);
  at::Tensor operator()(const at::Tensor& x_RD, const ForwardOptions& options) const;

 private:
  NormSpec spec_;
  at::Tensor weight_D_;
};

enum class Activation { kSilu, kGelu, kGeluTanh };
constexpr auto names(Activation) {  // as hidden_act spells them
  return std::array{config::EnumName<Activation>{"silu", Activation::kSilu},
                    config::EnumName<Activation>{"gelu", Activation::kGelu},
                    config::EnumName<Activation>{"gelu_pytorch_tanh", Activation::kGeluTanh}};
}
/// hidden_act, silu when there is none. \throws kCheckpoint listing what is allowed.
Activation read_activation(const ModelConfig& config);
at::Tensor activate(Activation activation, const at::Tensor& x);

}  // namespace evenkeel
