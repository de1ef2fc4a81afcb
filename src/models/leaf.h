/// \file  Declares the parts that the leaves (building blocks) of a decoder share: the builder, linear layers, norms
/// and activations. Every leaf takes its tensors from a ModelBuilder, which records them together with the sites and
/// the cost of the model.
/// Dimension names: R rows of a batch, D width, I in, O out, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "models/causal_lm.h"
#include "models/checkpoint.h"
#include "nn/engines/engine_of.h"

namespace evenkeel::models {

/// A matrix [rows, I] whose rows are the rows of several weights with the same input, for an engine that stacks
/// weights.
struct WeightStack {
  int64_t rows = 0;        ///< rows of all weights together
  int64_t used = 0;        ///< rows that hold weights already
  at::Tensor values_RI{};  ///< undefined before the first weight
};

/// Collects the tensors, sites and cost of a model under construction.
class ModelBuilder {
 public:
  /// \param origin  name of the config file, for errors
  ModelBuilder(ModelSpec model, TensorSource& from, std::string origin)
      : spec(std::move(model)), source_(from), origin_(std::move(origin)) {}

  /// Takes a tensor from the checkpoint and adds it to `parameters`. All take functions throw kInternal when a name is
  /// taken twice.
  /// \throws kCheckpoint as TensorSource::take()
  at::Tensor take(const std::string& name, at::IntArrayRef sizes);
  /// Takes a tensor that stays float32 or wider even if the others are narrower, as in transformers.
  at::Tensor take_float32(const std::string& name, at::IntArrayRef sizes);
  /// Takes a weight of matrix products, in the format of the source, and adds it to `parameters`. This function, the
  /// next one and take_exact_weight() also throw as check_product() (models/checkpoint.h).
  nn::FrozenWeight take_weight(const std::string& name, at::IntArrayRef sizes);
  /// Takes a weight and copies it to the next rows of `stack`, if the engine stacks weights. A weight of another type
  /// than the weights in `stack` is not copied. \return the weight, or a view of the copied rows
  nn::FrozenWeight take_weight(const std::string& name, at::IntArrayRef sizes, WeightStack& stack);
  /// Takes a weight and copies it into rows [first, first + sizes[0]) of matrix `index` of a stack [experts, rows, I].
  /// The first call for a stack allocates it.
  /// \return a view of the copied rows
  /// \throws kConfig when the source gives int8 weights; kCheckpoint naming the weight, and one of the stack, when the
  /// type of the stack does not hold its values exactly
  nn::FrozenWeight take_into(at::Tensor& stack_ERI, int64_t experts, int64_t rows, int64_t index, int64_t first,
                             const std::string& name, at::IntArrayRef sizes);
  /// Takes the weight of a norm, in the type in which the engine reads it.
  at::Tensor take_wide(const std::string& name, at::IntArrayRef sizes);
  /// Takes the weight of a router or a gate, as take_wide().
  nn::FrozenWeight take_exact_weight(const std::string& name, at::IntArrayRef sizes);
  const nn::Engine& engine() const { return nn::engine_of(source_.engine()); }
  /// Returns the counter of the multiply-adds of frozen linears with this role. It counts one token, and for experts
  /// one selected expert of a token.
  double& work_of(lora::SiteRole role);
  /// Returns the name under which llama.cpp stores a linear of the current layer.
  /// \param name   llama.cpp's name of the linear, as in "attn_q"
  /// \param heads  number of query or key heads; 0 for other linears
  lora::GgufPlace gguf_place(std::string_view name, int64_t heads = 0) const;

  ModelSpec spec;
  at::ScalarType activations = at::kFloat;  ///< type of hidden states
  int64_t layer = 0;                        ///< index of the layer under construction
  lora::Sites sites;
  TensorMap parameters;

 private:
  /// Checks that the type of a stack holds `values` exactly.
  void check_type(const at::Tensor& stack, const at::Tensor& values, const std::string& name) const;
  void list(const std::string& name, const at::Tensor& tensor);

  TensorSource& source_;
  std::string origin_;
};

/// Holds the arguments of one layer's forward pass. Everything is borrowed.
struct LayerPass {
  nn::Pass& engine;  ///< the engine's pass of this batch; computes the layers
  const ForwardOptions& options;
  const nn::RotaryTable& rotary;  ///< rotary table of the layer, for the rows of the batch
  size_t layer = 0;               ///< index of the layer
  /// Indices of each sequence's last row, when only those are needed; undefined: all rows are needed.
  at::Tensor queries_N{};
  /// Returns the rows of `x` that `queries_N` selects.
  at::Tensor select_query_rows(const at::Tensor& x) const {
    return queries_N.defined() ? x.index_select(0, queries_N) : x;
  }
};

/// Describes a linear layer of the checkpoint.
struct LinearSpec {
  std::string site;    ///< site name for adapters; empty: no adapter may be added
  std::string module;  ///< module name in the checkpoint
  int64_t in = 0, out = 0;
  lora::SiteRole role = lora::SiteRole::kMlp;
  bool bias = false;
  bool normed = false;  ///< whether a norm reads the output (nn::LinearLayer::normed)
  lora::FusedPlace fused{};
  lora::GgufPlace gguf{};
};

/// A frozen linear layer with optional factors of the adapter and of the change of the base: y = x W^T + factors(x) (+
/// b).
class FrozenLinear {
 public:
  FrozenLinear() = default;
  /// Takes weight and bias from `model` and adds the site. \param stack  shared with other layers; null: none
  FrozenLinear(const LinearSpec& spec, ModelBuilder& model, WeightStack* stack = nullptr);
  at::Tensor operator()(const at::Tensor& x_TI, const LayerPass& pass) const;
  /// Applies several layers to one input. REQUIRES that none is a router or a gate. \return one output per layer
  static std::vector<at::Tensor> together(std::initializer_list<const FrozenLinear*> layers, const at::Tensor& x_TI,
                                          const LayerPass& pass);

 private:
  nn::LinearLayer with_factors(const ForwardOptions& options) const;
  at::Tensor with_bias(const at::Tensor& y_TO) const;

  std::string site_;
  bool exact_ = false;  // true for routers and gates (nn::Pass::linears)
  bool normed_ = false;
  nn::FrozenWeight weight_;
  at::Tensor bias_O_;
};

/// Returns the factors of the adapter and of the change of the base at a site.
lora::SiteFactors factors_at(const ForwardOptions& options, const std::string& site);

/// Selects the normalisation of hidden states.
enum class NormKind {
  kRms,         ///< RMSNorm with a weight
  kRmsPlusOne,  ///< RMSNorm with the factor 1 + weight, as in Gemma
  kLayerNorm,   ///< LayerNorm without parameters
};
/// Returns what an RMSNorm multiplies by: the weight, or 1 + weight in float32 or wider. Differentiable.
at::Tensor norm_factors(const at::Tensor& weight_D, NormKind kind);
struct NormSpec {
  NormKind kind = NormKind::kRms;
  double eps = 1e-5;
};

/// A normalisation of hidden states.
class Norm {
 public:
  Norm() = default;
  /// \param module  module name of the weight; unused for kLayerNorm
  Norm(const NormSpec& spec, const std::string& module, int64_t width, ModelBuilder& model);
  at::Tensor operator()(const at::Tensor& x_RD, const nn::Pass& engine) const;
  /// Adds the output of a block to the residual stream and normalises the sum (nn::Pass::add_norm()).
  nn::NormedSum of_sum(const at::Tensor& x_RD, const at::Tensor& added_RD, const nn::Pass& engine,
                       bool for_products) const;

 private:
  NormSpec spec_;
  at::Tensor weight_D_;
};

/// Selects the activation of a feed-forward block.
enum class Activation { kSilu, kGelu, kGeluTanh };
constexpr auto names(Activation) {  // the spellings of hidden_act
  return std::array{config::EnumName<Activation>{"silu", Activation::kSilu},
                    config::EnumName<Activation>{"gelu", Activation::kGelu},
                    config::EnumName<Activation>{"gelu_pytorch_tanh", Activation::kGeluTanh}};
}
/// Reads the activation from config.json. \param otherwise  the name of the activation if the key is absent
/// \throws kCheckpoint listing the supported names
Activation read_activation(const ModelConfig& config, std::string_view key = "hidden_act",
                           std::string_view otherwise = "silu");
/// Applies an activation element by element.
at::Tensor activate(Activation activation, const at::Tensor& x);

}  // namespace evenkeel::models
