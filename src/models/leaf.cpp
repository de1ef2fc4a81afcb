#include "models/leaf.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "base/plain/error.h"
#include "nn/dense/norm.h"

namespace evenkeel::models {
namespace {

const lora::LoraFactors* factors_in(const lora::AdapterState* state, const std::string& site) {
  if (!state) return nullptr;
  const auto found = state->find(site);
  return found == state->end() ? nullptr : &found->second;
}

}  // namespace

at::Tensor ModelBuilder::take(const std::string& name, at::IntArrayRef sizes) {
  auto tensor = source_.take(name, sizes);
  list(name, tensor);
  return tensor;
}

at::Tensor ModelBuilder::take_float32(const std::string& name, at::IntArrayRef sizes) {
  const auto stored = source_.take_stored(name, sizes);
  const auto tensor = stored.scalar_type() == at::kDouble ? stored : stored.to(at::kFloat);
  list(name, tensor);
  spec.float32_tensors.insert(name);
  return tensor;
}

at::Tensor ModelBuilder::take_wide(const std::string& name, at::IntArrayRef sizes) {
  return engine().wide_weight(take(name, sizes));
}

nn::FrozenWeight ModelBuilder::take_exact_weight(const std::string& name, at::IntArrayRef sizes) {
  auto weight = take_wide(name, sizes);
  check_product(origin_, name, weight, activations, source_.engine());
  return weight;
}

nn::FrozenWeight ModelBuilder::take_weight(const std::string& name, at::IntArrayRef sizes) {
  auto weight = source_.take_weight(name, sizes);
  check_product(origin_, name, weight.values_OI, activations, source_.engine());
  list(name, weight.values_OI);
  if (weight.scales_O.defined()) list(name + ".scales", weight.scales_O);
  return weight;
}

nn::FrozenWeight ModelBuilder::take_weight(const std::string& name, at::IntArrayRef sizes, WeightStack& stack) {
  if (!engine().stacks_weights()) return take_weight(name, sizes);
  const auto values_OI = source_.take_weight(name, sizes).values_OI;
  auto& all_RI = stack.values_RI;
  if (!all_RI.defined()) all_RI = at::empty({stack.rows, values_OI.size(1)}, values_OI.options());
  auto own_OI = all_RI.narrow(0, stack.used, values_OI.size(0));
  stack.used += values_OI.size(0);
  if (values_OI.scalar_type() == all_RI.scalar_type())
    own_OI.copy_(values_OI);
  else
    own_OI = values_OI;
  list(name, own_OI);
  return own_OI;
}

nn::FrozenWeight ModelBuilder::take_into(at::Tensor& stack_ERI, int64_t experts, int64_t rows, int64_t index,
                                         int64_t first, const std::string& name, at::IntArrayRef sizes) {
  const auto weight = source_.take_weight(name, sizes);
  const auto& values_OI = weight.values_OI;
  EK_CHECK(!weight.scales_O.defined(), kConfig, "engine aten with a base in int8, supported: stored");
  if (!stack_ERI.defined()) stack_ERI = at::empty({experts, rows, values_OI.size(1)}, values_OI.options());
  check_type(stack_ERI, values_OI, name);
  const auto place_OI = stack_ERI[index].narrow(0, first, values_OI.size(0));
  place_OI.copy_(values_OI);
  list(name, place_OI);
  return place_OI;
}

void ModelBuilder::check_type(const at::Tensor& stack, const at::Tensor& values, const std::string& name) const {
  const auto type = stack.scalar_type();
  if (at::promote_types(type, values.scalar_type()) == type) return;
  const auto first = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const auto& parameter) { return parameter.second.is_alias_of(stack); });
  fail(kCheckpoint, origin_, ": tensor ", name, " is ", c10::toString(values.scalar_type()), ", but ", first->first,
       " is ", c10::toString(type),
       ", and engine aten holds both in one tensor; allowed: one type for the experts of a layer, ",
       "or model.dtype = \"float32\" (--dtype)");
}

void ModelBuilder::list(const std::string& name, const at::Tensor& tensor) {
  const bool is_new = parameters.emplace(name, tensor).second;
  EK_CHECK(is_new, kInternal, "a model of family ", spec.family, " takes tensor ", name, " twice");
}

double& ModelBuilder::work_of(lora::SiteRole role) {
  switch (role) {
    case lora::SiteRole::kAttention:
      return spec.work.attention;
    case lora::SiteRole::kExpert:
      return spec.work.experts;
    case lora::SiteRole::kRouter:
      return spec.work.router;
    default:
      return spec.work.mlp;
  }
}

lora::GgufPlace ModelBuilder::gguf_place(std::string_view name, int64_t heads) const {
  return {.tensor = concat("blk.", layer, ".", name, ".weight"),
          .interleaved_heads = spec.gguf.interleaves_heads ? heads : 0};
}

FrozenLinear::FrozenLinear(const LinearSpec& spec, ModelBuilder& model, WeightStack* stack)
    : site_(spec.site), exact_(spec.role == lora::SiteRole::kRouter || spec.out == 1), normed_(spec.normed) {
  const auto name = spec.module + ".weight";
  weight_ = exact_  ? model.take_exact_weight(name, {spec.out, spec.in})
            : stack ? model.take_weight(name, {spec.out, spec.in}, *stack)
                    : model.take_weight(name, {spec.out, spec.in});
  if (spec.bias) bias_O_ = model.take(spec.module + ".bias", {spec.out});
  model.work_of(spec.role) += static_cast<double>(spec.in) * static_cast<double>(spec.out);
  if (!site_.empty())
    model.sites[site_] = {.in = spec.in,
                          .out = spec.out,
                          .role = spec.role,
                          .modules = {spec.module},
                          .fused = spec.fused,
                          .gguf = spec.gguf};
}

at::Tensor FrozenLinear::operator()(const at::Tensor& x_TI, const LayerPass& pass) const {
  return with_bias(pass.engine.linears(x_TI, std::array{with_factors(pass.options)}, exact_).front());
}

nn::LinearLayer FrozenLinear::with_factors(const ForwardOptions& options) const {
  return {weight_, site_, factors_at(options, site_), normed_};
}

std::vector<at::Tensor> FrozenLinear::together(std::initializer_list<const FrozenLinear*> layers,
                                               const at::Tensor& x_TI, const LayerPass& pass) {
  std::vector<nn::LinearLayer> calls;
  for (const auto* layer : layers) calls.push_back(layer->with_factors(pass.options));
  auto outputs = pass.engine.linears(x_TI, calls, /*exact=*/false);
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = layers.begin()[i]->with_bias(outputs[i]);
  return outputs;
}

at::Tensor FrozenLinear::with_bias(const at::Tensor& y_TO) const {
  return bias_O_.defined() ? y_TO + bias_O_.to(y_TO.scalar_type()) : y_TO;
}

lora::SiteFactors factors_at(const ForwardOptions& options, const std::string& site) {
  return {factors_in(options.adapters, site), factors_in(options.base_change, site)};
}

at::Tensor norm_factors(const at::Tensor& weight_D, NormKind kind) {
  if (kind != NormKind::kRmsPlusOne || !weight_D.defined()) return weight_D;
  return weight_D.to(weight_D.scalar_type() == at::kDouble ? at::kDouble : at::kFloat) + 1;
}

Norm::Norm(const NormSpec& spec, const std::string& module, int64_t width, ModelBuilder& model) : spec_(spec) {
  if (spec.kind != NormKind::kLayerNorm) weight_D_ = model.take_wide(module + ".weight", {width});
}

at::Tensor Norm::operator()(const at::Tensor& x_RD, const nn::Pass& engine) const {
  return spec_.kind == NormKind::kLayerNorm ? nn::layer_norm(x_RD, {}, {}, spec_.eps)
                                            : engine.rms_norm(x_RD, norm_factors(weight_D_, spec_.kind), spec_.eps);
}

nn::NormedSum Norm::of_sum(const at::Tensor& x_RD, const at::Tensor& added_RD, const nn::Pass& engine,
                           bool for_products) const {
  if (spec_.kind != NormKind::kLayerNorm)
    return engine.add_norm(x_RD, added_RD, norm_factors(weight_D_, spec_.kind), spec_.eps, for_products);
  const auto sum_RD = x_RD + added_RD;
  return {sum_RD, (*this)(sum_RD, engine)};
}

Activation read_activation(const ModelConfig& config, std::string_view key, std::string_view otherwise) {
  const auto name = config.string_or(key, otherwise);
  std::vector<std::string_view> known;
  for (const auto& entry : names(Activation{})) {
    if (entry.name == name) return entry.value;
    known.push_back(entry.name);
  }
  fail(kCheckpoint, config.origin(), ": ", key, " is \"", name, "\", supported: ", join(known));
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    default:
      return at::silu(x);
  }
}

}  // namespace evenkeel::models
