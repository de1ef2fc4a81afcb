#include "nn/aten_engine/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/plain/error.h"
#include "nn/aten_engine/products.h"
#include "nn/dense/gradients.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The inputs of the node: x, then these of each projection. The converted factors are in the type of the products.
enum ProjectionTensor : size_t {
  kProjectionWeight,
  kProjectionA,
  kProjectionB,
  kConvertedA,
  kConvertedB,
  kConvertedChangeA,
  kConvertedChangeB,
  kProjectionTensors
};

constexpr size_t input_of(size_t projection, ProjectionTensor tensor) {
  return 1 + kProjectionTensors * projection + tensor;
}

bool present(const at::Tensor& factor) { return factor.numel() > 0; }

struct LinearNode : torch::autograd::Function<LinearNode> {
  static variable_list forward(AutogradContext* ctx, at::TensorList inputs, const std::vector<double>& scalings,
                               at::ScalarType type, bool contiguous) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    variable_list saved(inputs.begin(), inputs.end()), weights;
    saved[0] = inputs[0].to(type);
    for (size_t p = 0; p < scalings.size(); ++p) weights.push_back(saved[input_of(p, kProjectionWeight)]);
    auto outputs = products(saved[0], weights, contiguous);
    for (size_t p = 0; p < scalings.size(); ++p) add_factors(saved, p, scalings[p], outputs[p]);
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["scalings"] = scalings;
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = ctx->get_saved_variables();
    const auto scalings = ctx->saved_data["scalings"].toDoubleVector();
    variable_list out(input_of(scalings.size(), kProjectionWeight));
    for (size_t p = 0; p < scalings.size(); ++p) project_back(ctx, saved, p, scalings[p], grads[p].contiguous(), out);
    out.resize(out.size() + 3);  // the arguments after the tensors
    return out;
  }

 private:
  /// Adds the low-rank terms of a projection to its output, and appends x A^T to `saved`.
  static void add_factors(variable_list& saved, size_t p, double scaling, at::Tensor& y_TO) {
    const auto tensor = [&](ProjectionTensor which) { return saved[input_of(p, which)]; };
    const auto x_TI = saved[0];
    at::Tensor xa_TR;
    if (present(tensor(kConvertedA))) {
      xa_TR = at::mm(x_TI, tensor(kConvertedA).t());
      y_TO.addmm_(xa_TR, tensor(kConvertedB).t(), 1, scaling);
    }
    if (present(tensor(kConvertedChangeA)))
      y_TO.addmm_(at::mm(x_TI, tensor(kConvertedChangeA).t()), tensor(kConvertedChangeB).t());
    saved.push_back(xa_TR);
  }

  static void project_back(const AutogradContext* ctx, const variable_list& saved, size_t p, double scaling,
                           const at::Tensor& dy_TO, variable_list& out) {
    const auto tensor = [&](ProjectionTensor which) { return saved[input_of(p, which)]; };
    const auto& x_TI = saved[0];
    const bool dx_wanted = ctx->needs_input_grad(0);
    if (const size_t w = input_of(p, kProjectionWeight); ctx->needs_input_grad(w)) out[w] = at::mm(dy_TO.t(), x_TI);
    if (dx_wanted) add_product(out[0], dy_TO, tensor(kProjectionWeight).to(dy_TO.scalar_type()), 1);
    if (present(tensor(kConvertedA))) {
      const size_t a = input_of(p, kProjectionA), b = input_of(p, kProjectionB);
      const auto dxa_TR = at::mm(dy_TO, tensor(kConvertedB));
      const auto& xa_TR = saved[out.size() + p];
      if (ctx->needs_input_grad(a)) out[a] = accumulate_product(saved[a], dxa_TR.t(), x_TI, scaling);
      if (ctx->needs_input_grad(b)) out[b] = accumulate_product(saved[b], dy_TO.t(), xa_TR, scaling);
      if (dx_wanted) add_product(out[0], dxa_TR, tensor(kConvertedA), scaling);
    }
    if (present(tensor(kConvertedChangeA)) && dx_wanted)
      add_product(out[0], at::mm(dy_TO, tensor(kConvertedChangeB)), tensor(kConvertedChangeA), 1);
  }

  /// Adds scale x w to `sum`. The first product, which has scale 1, becomes the sum.
  static void add_product(at::Tensor& sum, const at::Tensor& x, const at::Tensor& w, double scale) {
    if (sum.defined())
      sum.addmm_(x, w, 1, scale);
    else
      sum = at::mm(x, w);
  }
};

/// Appends the inputs of a projection. Autograd accepts no undefined tensors: absent factors are empty tensors.
void append_inputs(const Projection& of, at::ScalarType type, variable_list& inputs) {
  const auto none = [&] { return at::empty({0}, inputs[0].options()); };
  const auto given = [&](const at::Tensor& factor) { return factor.defined() ? factor : none(); };
  const auto converted = [&](const at::Tensor& known, const at::Tensor& factor) {
    return known.defined() ? known : given(factor).detach().to(type);
  };
  inputs.insert(inputs.end(), {of.w_OI, given(of.adapter.a_RI), given(of.adapter.b_OR)});
  for (const auto* pair : {&of.adapter, &of.change})
    inputs.insert(inputs.end(),
                  {converted(pair->converted_a_RI, pair->a_RI), converted(pair->converted_b_OR, pair->b_OR)});
}

LinearFactors factors_of(const lora::LoraFactors* lora, const lora::LoraFactors* converted, const at::Tensor& w) {
  if (!lora) return {};
  check_factor_shapes(lora->a, lora->b, w);
  LinearFactors factors{lora->a, lora->core.defined() ? at::matmul(lora->b, lora->core) : lora->b, lora->scaling};
  if (converted) factors.converted_a_RI = converted->a, factors.converted_b_OR = converted->b;
  return factors;
}

}  // namespace

at::ScalarType inner_type(const at::Tensor& x, const Compute& compute) {
  return compute.inner == at::kFloat ? x.scalar_type() : compute.inner;
}

lora::AdapterState converted_factors(const lora::AdapterState* state, at::ScalarType type) {
  lora::AdapterState converted;
  std::vector<at::Tensor> from, to;
  if (!state) return converted;
  for (const auto& [site, factors] : *state) {
    if (factors.a.dim() != 2 || factors.core.defined() || factors.a.scalar_type() == type) continue;
    auto& own = converted[site];
    from.insert(from.end(), {factors.a.detach(), factors.b.detach()});
    own.a = to.emplace_back(at::empty_like(from.end()[-2], type));
    own.b = to.emplace_back(at::empty_like(from.end()[-1], type));
  }
  const c10::NoGradGuard no_grad;
  if (!from.empty()) at::_foreach_copy_(to, from);
  return converted;
}

Projection projection_of(const FrozenWeight& weight, const lora::SiteFactors& factors,
                         const lora::SiteFactors& converted) {
  const auto& w_OI = weight.values_OI;
  EK_CHECK(!weight.scales_O.defined(), kConfig, "engine aten: an int8 weight, supported: float types");
  return {w_OI, factors_of(factors.adapter, converted.adapter, w_OI),
          factors_of(factors.change, converted.change, w_OI)};
}

std::vector<at::Tensor> linears(const at::Tensor& x_TI, std::span<const Projection> projections, at::ScalarType type) {
  variable_list inputs{x_TI};
  std::vector<double> scalings;
  bool normed = false;
  for (const auto& projection : projections) {
    append_inputs(projection, type, inputs);
    scalings.push_back(projection.adapter.scaling);
    normed = normed || projection.normed;
  }
  return LinearNode::apply(at::TensorList(inputs), scalings, type, normed);
}

}  // namespace evenkeel::nn::aten
