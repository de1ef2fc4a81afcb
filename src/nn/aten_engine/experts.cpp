#include "nn/aten_engine/experts.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <map>

#include "base/plain/error.h"
#include "nn/aten_engine/grouped.h"
#include "nn/aten_engine/rows.h"
#include "nn/aten_engine/trained_stack.h"
#include "nn/cuda_kernels/rows.h"
#include "nn/cuda_kernels/swiglu.h"
#include "nn/dense/gradients.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr size_t kProjections = 3;
constexpr size_t kPackedTogether = 4;  // layers

// The inputs of the node. Each projection has two: A and B of the adapter. The packed factors get no gradient.
enum Input : size_t {
  kX,
  kWeights,
  kExperts,
  kGateUp,
  kDown,
  kAGateUp,
  kBGateUp,
  kADown,
  kBDown,
  kFirstFactor,
  kInputs = kFirstFactor + 2 * kProjections
};
// Tensors that are saved after them.
enum SavedTensor : size_t { kOrder = kInputs, kToken, kPlace, kEnds, kBegins, kIdle, kGU, kXAGateUp, kXADown, kAll };

constexpr size_t factor_a(size_t projection) { return kFirstFactor + 2 * projection; }

/// The trained LoRA factors of one stack: the projections `first` to `last`.
struct StackFactors {
  std::vector<LoraPair> pairs;
  std::vector<size_t> inputs;  // of each pair, its A
};

StackFactors factors_of(const variable_list& tensors, const std::vector<double>& scalings, size_t first, size_t last) {
  StackFactors all;
  for (size_t p = first; p <= last; ++p) {
    const size_t a = factor_a(p);
    if (tensors[a].numel() == 0) continue;
    const auto begin = static_cast<int64_t>(p - first) * tensors[a + 1].size(1);
    all.pairs.push_back({tensors[a], tensors[a + 1], scalings[p], begin});
    all.inputs.push_back(a);
  }
  return all;
}

/// Returns the factors of the projections `first` to `last` of a layer.
StackParts parts_of(const LayerFactors& layer, size_t first, size_t last) {
  StackParts stack;
  for (const bool change : {false, true})
    for (size_t p = first; p <= last; ++p) {
      auto pair = change ? layer.projections[p].change : layer.projections[p].adapter;
      if (!pair.a.defined()) continue;
      pair.first_out = static_cast<int64_t>(p - first) * pair.b.size(1);
      stack.pairs.push_back(std::move(pair));
      stack.trained += change ? 0 : 1;
    }
  return stack;
}

/// Packs the projections `first` to `last` of layers of equal sizes.
void pack_stacks(std::span<LayerFactors* const> layers, size_t first, size_t last, PackedFactors LayerFactors::*member,
                 at::ScalarType type) {
  std::vector<StackParts> stacks;
  for (const auto* layer : layers) stacks.push_back(parts_of(*layer, first, last));
  auto packed = pack(stacks, static_cast<int64_t>(last - first) + 1, type);
  for (size_t i = 0; i < layers.size(); ++i) layers[i]->*member = std::move(packed[i]);
}

void keep(const Slots& slots, variable_list& all) {
  all[kOrder] = slots.order_S, all[kToken] = slots.token_S, all[kPlace] = slots.place_S;
  all[kEnds] = slots.ends_E, all[kBegins] = slots.begins_T, all[kIdle] = slots.idle_E11;
}

Slots slots_in(const variable_list& all) {
  return {all[kOrder], all[kToken], all[kPlace], all[kEnds], all[kBegins], all[kIdle]};
}

/// A product with a stack, and the LoRA term. The LoRA term is undefined without factors.
struct Product {
  at::Tensor base_SO, lora_SO;
  at::Tensor whole() { return lora_SO.defined() ? base_SO.add_(lora_SO) : base_SO; }
  /// Sums the token-choices of both terms before they are added, because there are fewer tokens than choices.
  at::Tensor summed(const Slots& slots, const at::Tensor& weights_TK = {}) const {
    const auto flat_S = weights_TK.defined() ? weights_TK.view({-1}) : weights_TK;
    if (auto own = cuda::summed_rows(base_SO, lora_SO, slots.place_S, slots.begins_T, flat_S)) return *std::move(own);
    const auto sum = [&](const at::Tensor& y_SO) { return summed_choices(y_SO, slots, weights_TK); };
    return lora_SO.defined() ? sum(base_SO).add_(sum(lora_SO)) : sum(base_SO);
  }
};

/// Computes x W^T and the LoRA term, and x A^T in `xa`. Empty factors: no LoRA term.
Product project(const at::Tensor& x_SI, const at::Tensor& w_EOI, const at::Tensor& a_ERI, const at::Tensor& b_EOR,
                const at::Tensor& ends, at::Tensor& xa_SR) {
  Product y{grouped(x_SI, w_EOI.transpose(1, 2), ends), {}};
  if (a_ERI.numel() == 0) return y;
  xa_SR = grouped(x_SI, a_ERI.transpose(1, 2), ends);
  y.lora_SO = grouped(xa_SR, b_EOR.transpose(1, 2), ends);
  return y;
}

/// Computes dy W and the LoRA term, and dy B in `dxa`.
Product project_back(const at::Tensor& dy_SO, const at::Tensor& w_EOI, const at::Tensor& a_ERI, const at::Tensor& b_EOR,
                     const at::Tensor& ends, at::Tensor& dxa_SR) {
  Product dx{grouped(dy_SO, w_EOI, ends), {}};
  if (a_ERI.numel() == 0) return dx;
  dxa_SR = grouped(dy_SO, b_EOR, ends);
  dx.lora_SO = grouped(dxa_SR, a_ERI, ends);
  return dx;
}

struct ExpertsNode : torch::autograd::Function<ExpertsNode> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList inputs, const std::vector<double>& scalings,
                            const SlotNumbers& numbers, at::ScalarType type, bool gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    variable_list all(inputs.begin(), inputs.end());
    all.resize(kAll);
    if (gradients) all[kX] = all[kX].to(type);
    all[kWeights] = all[kWeights].to(type).contiguous();
    for (const size_t stack : {kGateUp, kDown}) all[stack] = all[stack].to(type);
    const auto slots = slots_of(all[kExperts], all[kDown].size(0), numbers, gradients);
    keep(slots, all);
    const auto y_TD = through(slot_inputs(all[kX], slots, type), all).summed(slots, all[kWeights]);
    ctx->save_for_backward(std::move(all));
    ctx->saved_data["scalings"] = scalings;
    return y_TD;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto all = ctx->get_saved_variables();
    variable_list out(kInputs + 4);
    const auto scalings = ctx->saved_data["scalings"].toDoubleVector();
    const auto slots = slots_in(all);
    const auto& ends = slots.ends_E;
    const auto dy_SD = selected_rows(grads[0], all[kToken]);  // not yet weighted
    at::Tensor dxa_SR;
    auto dh = project_back(dy_SD, all[kDown], all[kADown], all[kBDown], ends, dxa_SR);
    const auto w_S1 = all[kWeights].view({-1}).index_select(0, all[kOrder]).unsqueeze(1);
    const auto [dgu, dw_S, h_SF] = through_swiglu(dh, w_S1, all, ctx->needs_input_grad(kWeights));
    if (dw_S.defined()) out[kWeights] = dw_S.view_as(all[kWeights]);
    if (ctx->needs_input_grad(kDown)) out[kDown] = grouped_outer(dy_SD, h_SF * w_S1, slots);
    const auto down = factors_of(all, scalings, 2, 2);
    if (!down.pairs.empty())  // weighted here, because the product is small
      put_gradients(ctx, down, {h_SF, dxa_SR * w_S1, dy_SD, all[kXADown] * w_S1}, slots, all, out);
    const auto dx_SD = project_back(dgu, all[kGateUp], all[kAGateUp], all[kBGateUp], ends, dxa_SR);
    if (ctx->needs_input_grad(kGateUp)) out[kGateUp] = grouped_outer(dgu, selected_rows(all[kX], all[kToken]), slots);
    const auto gate_up = factors_of(all, scalings, 0, 1);
    if (!gate_up.pairs.empty())
      put_gradients(ctx, gate_up, {selected_rows(all[kX], all[kToken]), dxa_SR, dgu, all[kXAGateUp]}, slots, all, out);
    if (ctx->needs_input_grad(kX)) out[kX] = dx_SD.summed(slots);
    return out;
  }

 private:
  /// Computes the outputs of the experts [S, D], without the routing weights.
  static Product through(const at::Tensor& x_SD, variable_list& all) {
    const int64_t width = all[kDown].size(2);
    auto gu = project(x_SD, all[kGateUp], all[kAGateUp], all[kBGateUp], all[kEnds], all[kXAGateUp]);
    auto own = cuda::swiglu(gu.base_SO, gu.lora_SO);
    all[kGU] = own ? gu.base_SO : gu.whole();
    const auto h_SF = own ? *own : at::silu(all[kGU].narrow(1, 0, width)).mul_(all[kGU].narrow(1, width, width));
    return project(h_SF, all[kDown], all[kADown], all[kBDown], all[kEnds], all[kXADown]);
  }

  static at::ScalarType sum_type(const at::Tensor& x) {
    return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }

  /// Computes the gradients of w silu(g) u, and silu(g) u. The weights' gradient has the order of the choices.
  static cuda::SwigluGradients through_swiglu(Product& dh, const at::Tensor& w_S1, const variable_list& all,
                                              bool wants_weights) {
    if (auto own = cuda::swiglu_backward(all[kGU], dh.base_SO, dh.lora_SO, w_S1, all[kOrder], wants_weights, true))
      return *std::move(own);
    auto dh_SF = dh.whole();
    const int64_t width = dh_SF.size(1);
    const auto g_SF = all[kGU].narrow(1, 0, width), u_SF = all[kGU].narrow(1, width, width);
    const auto silu_SF = at::silu(g_SF), h_SF = silu_SF * u_SF;
    at::Tensor dw_S;
    if (wants_weights) dw_S = (h_SF * dh_SF).sum(1, false, sum_type(dh_SF)).index_select(0, all[kPlace]);
    dh_SF.mul_(w_S1);
    auto dgu = at::empty({dh_SF.size(0), 2 * width}, dh_SF.options());
    auto dg_SF = dgu.narrow(1, 0, width), du_SF = dgu.narrow(1, width, width);
    at::silu_backward_out(dg_SF, dh_SF * u_SF, g_SF);
    at::mul_out(du_SF, dh_SF, silu_SF);
    return {dgu, dw_S, h_SF};
  }

  struct Outer {
    at::Tensor x_SI, dxa_SR, dy_SO, xa_SR;
  };

  /// Computes dA = (dy B)^T x and dB = dy^T (x A^T) for all parts, and distributes them.
  static void put_gradients(const AutogradContext* ctx, const StackFactors& factors, const Outer& of,
                            const Slots& slots, const variable_list& all, variable_list& out) {
    const int64_t columns = packed_ranks(factors.pairs, of.dy_SO.scalar_type());
    const auto wanted = [&](size_t offset) {
      return std::any_of(factors.inputs.begin(), factors.inputs.end(),
                         [&](size_t a) { return ctx->needs_input_grad(a + offset); });
    };
    at::Tensor da, db;
    if (wanted(0)) da = grouped_outer(of.dxa_SR.narrow(1, 0, columns), of.x_SI, slots);
    if (wanted(1)) db = grouped_outer(of.dy_SO, of.xa_SR.narrow(1, 0, columns), slots);
    int64_t first = 0;
    for (size_t i = 0; i < factors.pairs.size(); ++i) {
      const auto& part = factors.pairs[i];
      const size_t a = factors.inputs[i], b = a + 1;
      // The packed B includes the scaling, so dxa and dA include it as well.
      if (ctx->needs_input_grad(a)) out[a] = accumulate_gradient(all[a], part_of_a(da, part, first), 1);
      if (ctx->needs_input_grad(b)) out[b] = accumulate_gradient(all[b], part_of_b(db, part, first), part.scaling);
      first += part.a.size(1);
    }
  }
};

/// Returns the factors of one projection. A core is multiplied into B.
ProjectionFactors projection_factors(const lora::SiteFactors& factors, std::string_view projection, int64_t experts,
                                     int64_t in, int64_t out) {
  ProjectionFactors result;
  if (const auto* lora = factors.adapter) {
    check_expert_factors(*lora, projection, experts, in, out);
    result.adapter = {lora->a, lora->core.defined() ? at::matmul(lora->b, lora->core) : lora->b, lora->scaling};
  }
  if (const auto* change = factors.change) {
    check_expert_factors(*change, projection, experts, in, out);
    result.change = {change->a, change->b};
  }
  return result;
}

void check_stacks(const ExpertWeights& weights) {
  const auto count = static_cast<int64_t>(weights.gate.size()), hidden = weights.gate[0].in(),
             width = weights.gate[0].out();
  const auto &gate_up = weights.gate_up_stack, &down = weights.down_stack;
  EK_CHECK(gate_up.defined() && gate_up.sizes() == at::IntArrayRef({count, 2 * width, hidden}) && down.defined() &&
               down.sizes() == at::IntArrayRef({count, hidden, width}),
           kInternal, "engine aten: the matrices of ", count, " experts lie in no stack");
}

}  // namespace

LayerFactors layer_factors(const ExpertWeights& weights, const ExpertFactors& factors) {
  const auto count = static_cast<int64_t>(weights.gate.size()), hidden = weights.gate[0].in(),
             width = weights.gate[0].out();
  return {.projections = {projection_factors(factors.gate, "gate_proj", count, hidden, width),
                          projection_factors(factors.up, "up_proj", count, hidden, width),
                          projection_factors(factors.down, "down_proj", count, width, hidden)}};
}

void pack_layers(std::span<LayerFactors> layers, at::ScalarType type) {
  std::map<std::vector<int64_t>, std::vector<LayerFactors*>> by_sizes;
  for (auto& layer : layers) {
    std::vector<int64_t> sizes;
    for (const auto& [adapter, change] : layer.projections)
      for (const auto* pair : {&adapter, &change})
        if (pair->a.defined()) sizes.insert(sizes.end(), {pair->a.size(0), pair->a.size(2), pair->b.size(1)});
    by_sizes[sizes].push_back(&layer);
  }
  for (const auto& [sizes, alike] : by_sizes)
    for (size_t first = 0; first < alike.size(); first += kPackedTogether) {
      const auto some = std::span(alike).subspan(first, std::min(kPackedTogether, alike.size() - first));
      pack_stacks(some, 0, 1, &LayerFactors::gate_up, type);
      pack_stacks(some, 2, 2, &LayerFactors::down, type);
    }
}

at::Tensor experts(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights,
                   const LayerFactors& factors, const SlotNumbers& numbers, at::ScalarType type) {
  check_experts(x_TD, routing, weights);
  check_stacks(weights);
  const int64_t width = weights.gate[0].out();
  variable_list inputs{x_TD,
                       routing.weights,
                       routing.experts,
                       trained_stack(weights.gate_up_stack, {{weights.gate, 0}, {weights.up, width}}),
                       trained_stack(weights.down_stack, {{weights.down, 0}}),
                       factors.gate_up.a_ERI,
                       factors.gate_up.b_EOR,
                       factors.down.a_ERI,
                       factors.down.b_EOR};
  std::vector<double> scalings;
  for (const auto& [adapter, change] : factors.projections) {
    inputs.insert(inputs.end(), {adapter.a, adapter.b});
    scalings.push_back(adapter.scaling);
  }
  // Autograd accepts no undefined tensors: absent factors are empty tensors.
  for (auto& input : inputs)
    if (!input.defined()) input = at::empty({0}, x_TD.options());
  const bool gradients =
      c10::GradMode::is_enabled() &&
      std::any_of(inputs.begin(), inputs.end(), [](const auto& input) { return input.requires_grad(); });
  return ExpertsNode::apply(at::TensorList(inputs), scalings, numbers, type, gradients);
}

}  // namespace evenkeel::nn::aten
