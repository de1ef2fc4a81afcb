#include "nn/moe/experts.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/plain/error.h"
#include "nn/dense/aten_linear.h"
#include "nn/dense/gradients.h"
#include "nn/kernels/layers/expert_batch.h"
#include "nn/moe/aten_experts.h"
#include "nn/moe/aten_trained_stack.h"

namespace evenkeel::nn {
namespace {

using kernels::ExpertBatch;
using kernels::ExpertBatchGradients;
using kernels::ExpertSlots;
using kernels::kAdapter;
using kernels::kChange;
using kernels::kDown;
using kernels::kLoraBranches;
using kernels::kProjections;
using kernels::Scratch;
using kernels::TokenRows;
using kernels::WorkspaceLease;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Positions of the inputs of the node, in the order of apply(). Saved activations follow them.
enum Input : size_t {
  kX,
  kWeights,
  kExperts,
  kFirstFactor,
  kFirstMatrix = kFirstFactor + 2 * kProjections * kLoraBranches
};
enum SavedRows : size_t { kSavedG, kSavedU, kSavedXA, kSavedRows };

constexpr size_t factor_a(size_t projection, size_t branch) {
  return kFirstFactor + 2 * (projection * kLoraBranches + branch);
}
constexpr size_t factor_b(size_t projection, size_t branch) { return factor_a(projection, branch) + 1; }

// The settings of a call. The node keeps them for its backward pass.
struct Settings : torch::CustomClassHolder {
  std::vector<double> scalings;  // of the adapters, one per projection
  MatmulTable products;
  std::vector<at::Tensor> scales;  // int8 scales of the matrices, in their order; empty: not int8
  bool keep = true;                // save activations for a backward pass
};
using SettingsPointer = c10::intrusive_ptr<Settings>;

kernels::ExpertSlots sort_slots(const at::Tensor& experts_TK, int64_t num_experts) {
  return {std::span(experts_TK.const_data_ptr<int64_t>(), static_cast<size_t>(experts_TK.numel())), experts_TK.size(1),
          num_experts};
}

// Builds the operands. \param inputs  the tensors in the order of Input, then 3 E matrices
template <typename T>
kernels::ExpertBatch<T> make_batch(const kernels::ExpertSlots& slots, const variable_list& inputs,
                                   const Settings& settings) {
  const size_t experts = (inputs.size() - kFirstMatrix) / kProjections;
  kernels::ExpertBatch<T> batch{.slots = slots,
                                .products = settings.products,
                                .top_k = inputs[kWeights].size(1),
                                .hidden = inputs[kX].size(1),
                                .width = inputs[kFirstMatrix].size(0),
                                .x = inputs[kX].const_data_ptr<T>(),
                                .weights = inputs[kWeights].const_data_ptr<T>(),
                                .saved = {},
                                .lora = {},
                                .matrices = {},
                                .live = {}};
  for (size_t p = 0; p < kProjections; ++p) {
    for (size_t e = 0; e < experts; ++e) {
      const size_t i = p * experts + e;
      batch.matrices[p].push_back(kernels::StoredMatrix::of(
          inputs[kFirstMatrix + i], settings.scales.empty() ? at::Tensor() : settings.scales[i]));
    }
    for (size_t i = 0; i < kLoraBranches; ++i)
      batch.lora[p][i] = kernels::LoraView<T>::of(inputs[factor_a(p, i)], inputs[factor_b(p, i)],
                                                  i == kAdapter ? settings.scalings[p] : 1.0);
  }
  return batch;
}

template <typename T>
void set_saved(kernels::ExpertBatch<T>& batch, std::span<const at::Tensor> saved) {
  batch.saved = {saved[kSavedG].mutable_data_ptr<T>(), saved[kSavedU].mutable_data_ptr<T>(),
                 saved[kSavedXA].mutable_data_ptr<T>()};
}

// Results by slot, before they are summed by token. Not used with one expert per token.
template <typename T>
struct SlotRows {
  kernels::Scratch<T> memory;
};

template <typename T>
at::Tensor forward_as(const kernels::ExpertSlots& slots, const variable_list& inputs, const Settings& settings,
                      variable_list& saved) {
  const auto& x_TD = inputs[kX];
  auto batch = make_batch<T>(slots, inputs, settings);
  const auto total = static_cast<int64_t>(slots.token.size());
  if (settings.keep) {
    for (const int64_t width : {batch.width, batch.width, batch.ranks()})
      saved.push_back(at::empty({total, width}, x_TD.options()));
    set_saved<T>(batch, saved);
  }
  auto y_TD = at::empty_like(x_TD);
  const kernels::WorkspaceLease<SlotRows<T>> by_slot(kernels::workspace_pool<SlotRows<T>>());
  const kernels::TokenRows<T> y{y_TD.template mutable_data_ptr<T>(),
                                batch.top_k > 1 ? by_slot->memory.at_least(total * batch.hidden) : nullptr,
                                batch.weights};
  experts_forward(batch, y);
  return y_TD;
}

// Returns a flag per token: 1 if it has a gradient. Empty: (nearly) all tokens have one.
std::vector<uint8_t> live_tokens(const at::Tensor& dy_TD) {
  const auto live = nonzero_rows(dy_TD);
  if (!live) return {};
  std::vector<uint8_t> tokens(static_cast<size_t>(dy_TD.size(0)), 0);
  for (int64_t i = 0; i < live->numel(); ++i) tokens[static_cast<size_t>(live->const_data_ptr<int64_t>()[i])] = 1;
  return tokens;
}

template <typename T>
kernels::ExpertBatchGradients<T> gradients_of_matrices(const AutogradContext* ctx, const kernels::ExpertSlots& slots,
                                                       const variable_list& inputs, variable_list& out) {
  kernels::ExpertBatchGradients<T> grads;
  const size_t experts = (inputs.size() - kFirstMatrix) / kProjections;
  for (size_t p = 0; p < kProjections; ++p)
    for (size_t e = 0; e < experts; ++e) {
      const size_t i = kFirstMatrix + p * experts + e;
      if (!ctx->needs_input_grad(i)) continue;
      out[i] = slots.rows(static_cast<int64_t>(e)) ? at::empty_like(inputs[i]) : at::zeros_like(inputs[i]);
      grads.matrices[p].resize(experts, nullptr);
      grads.matrices[p][e] = out[i].template mutable_data_ptr<T>();
    }
  return grads;
}

template <typename T>
variable_list backward_as(const AutogradContext* ctx, const kernels::ExpertSlots& slots, const variable_list& inputs,
                          const Settings& settings, std::span<const at::Tensor> saved, const at::Tensor& dy_TD) {
  variable_list out(inputs.size());
  auto batch = make_batch<T>(slots, inputs, settings);
  set_saved<T>(batch, saved);
  auto grads = gradients_of_matrices<T>(ctx, slots, inputs, out);
  const bool frozen =
      std::all_of(grads.matrices.begin(), grads.matrices.end(), [](const auto& m) { return m.empty(); });
  if (frozen) batch.live = live_tokens(dy_TD);
  const kernels::WorkspaceLease<SlotRows<T>> by_slot(kernels::workspace_pool<SlotRows<T>>());
  if (ctx->needs_input_grad(kX)) {
    out[kX] = batch.live.empty() ? at::empty_like(inputs[kX]) : at::zeros_like(inputs[kX]);
    grads.dx.by_token = out[kX].template mutable_data_ptr<T>();
    if (batch.top_k > 1)
      grads.dx.by_slot = by_slot->memory.at_least(static_cast<int64_t>(slots.token.size()) * batch.hidden);
  }
  if (ctx->needs_input_grad(kWeights)) {
    out[kWeights] = at::zeros_like(inputs[kWeights]);
    grads.dweights = out[kWeights].template mutable_data_ptr<T>();
  }
  for (size_t p = 0; p < kProjections; ++p) {
    const size_t a = factor_a(p, kAdapter), b = factor_b(p, kAdapter);
    if (ctx->needs_input_grad(a)) batch.lora[p][kAdapter].da = gradient_buffer<T>(inputs[a], out[a]);
    if (ctx->needs_input_grad(b)) batch.lora[p][kAdapter].db = gradient_buffer<T>(inputs[b], out[b]);
  }
  experts_backward(batch, dy_TD.const_data_ptr<T>(), grads);
  return out;
}

struct ExpertsNode : torch::autograd::Function<ExpertsNode> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors, const SettingsPointer& settings) {
    variable_list inputs(tensors.begin(), tensors.end()), saved;
    const auto num_experts = static_cast<int64_t>((inputs.size() - kFirstMatrix) / kProjections);
    const auto slots = sort_slots(inputs[kExperts], num_experts);
    const auto y_TD = inputs[kX].scalar_type() == at::kDouble ? forward_as<double>(slots, inputs, *settings, saved)
                                                              : forward_as<float>(slots, inputs, *settings, saved);
    if (!settings->keep) return y_TD;
    ctx->saved_data["settings"] = c10::IValue::make_capsule(settings);
    inputs.insert(inputs.end(), saved.begin(), saved.end());
    ctx->save_for_backward(std::move(inputs));
    return y_TD;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto inputs = ctx->get_saved_variables();
    const auto settings = c10::static_intrusive_pointer_cast<Settings>(ctx->saved_data["settings"].toCapsule());
    const variable_list saved(inputs.end() - kSavedRows, inputs.end());
    inputs.resize(inputs.size() - kSavedRows);
    const auto num_experts = static_cast<int64_t>((inputs.size() - kFirstMatrix) / kProjections);
    const auto slots = sort_slots(inputs[kExperts], num_experts);
    const auto dy_TD = grads[0].contiguous();
    auto out = dy_TD.scalar_type() == at::kDouble ? backward_as<double>(ctx, slots, inputs, *settings, saved, dy_TD)
                                                  : backward_as<float>(ctx, slots, inputs, *settings, saved, dy_TD);
    out.emplace_back();
    return out;
  }
};

bool has_sizes(const FrozenWeight& w, int64_t out, int64_t in) { return w.out() == out && w.in() == in; }

void check(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights) {
  const size_t experts = weights.gate.size();
  EK_CHECK(experts > 0 && weights.up.size() == experts && weights.down.size() == experts, kShape, "experts: ", experts,
           " gate, ", weights.up.size(), " up and ", weights.down.size(), " down matrices");
  const int64_t hidden = x_TD.size(1), width = weights.gate[0].out();
  for (size_t e = 0; e < experts; ++e)
    EK_CHECK(has_sizes(weights.gate[e], width, hidden) && has_sizes(weights.up[e], width, hidden) &&
                 has_sizes(weights.down[e], hidden, width),
             kShape, "experts: expert ", e, " has matrices of ", weights.gate[e].values_OI.sizes(),
             weights.up[e].values_OI.sizes(), weights.down[e].values_OI.sizes(), ", x has sizes ", x_TD.sizes());
  EK_CHECK(routing.experts.sizes() == routing.weights.sizes() && routing.experts.size(0) == x_TD.size(0), kShape,
           "experts: routing of ", routing.experts.sizes(), " for x of ", x_TD.sizes());
}

void check(const lora::LoraFactors& lora, std::string_view projection, int64_t experts, int64_t in, int64_t out) {
  const int64_t rank = lora.rank();
  EK_CHECK(
      lora.a.sizes() == at::IntArrayRef({experts, rank, in}) && lora.b.sizes() == at::IntArrayRef({experts, out, rank}),
      kShape, "experts: adapter of ", projection, " has a of ", lora.a.sizes(), " and b of ", lora.b.sizes(),
      ", expected [", experts, ", r, ", in, "] and [", experts, ", ", out, ", r]");
}

// Writes the LoRA factors of a projection into the inputs of the node.
void take_factors(variable_list& inputs, size_t p, const lora::SiteFactors& factors, int64_t count, int64_t in,
                  int64_t out) {
  constexpr std::array<std::string_view, kProjections> kNames{"gate_proj", "up_proj", "down_proj"};
  const auto dtype = inputs[kX].scalar_type();
  if (const auto* lora = factors.adapter) {
    check(*lora, kNames[p], count, in, out);
    inputs[factor_a(p, kAdapter)] = lora->a.to(dtype).contiguous();
    inputs[factor_b(p, kAdapter)] =
        (lora->core.defined() ? at::matmul(lora->b, lora->core) : lora->b).to(dtype).contiguous();
  }
  if (const auto* change = factors.change) {
    check(*change, kNames[p], count, in, out);
    inputs[factor_a(p, kChange)] = kernels::frozen_factor(change->a, dtype);
    inputs[factor_b(p, kChange)] = kernels::frozen_factor(change->b, dtype);
  }
}

aten::ProjectionFactors factors_for_aten(const lora::SiteFactors& factors, std::string_view projection, int64_t experts,
                                         int64_t in, int64_t out) {
  aten::ProjectionFactors result;
  if (const auto* lora = factors.adapter) {
    check(*lora, projection, experts, in, out);
    result.adapter = {lora->a, lora->core.defined() ? at::matmul(lora->b, lora->core) : lora->b, lora->scaling};
  }
  if (const auto* change = factors.change) {
    check(*change, projection, experts, in, out);
    result.change = {change->a, change->b};
  }
  return result;
}

}  // namespace

aten::LayerFactors factors_for_aten(const ExpertWeights& weights, const ExpertFactors& factors) {
  const auto count = static_cast<int64_t>(weights.gate.size()), hidden = weights.gate[0].in(),
             width = weights.gate[0].out();
  return {.projections = {factors_for_aten(factors.gate, "gate_proj", count, hidden, width),
                          factors_for_aten(factors.up, "up_proj", count, hidden, width),
                          factors_for_aten(factors.down, "down_proj", count, width, hidden)}};
}

at::Tensor experts_by_aten(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights,
                           const aten::LayerFactors& factors, const aten::SlotNumbers& numbers,
                           const Compute& compute) {
  check(x_TD, routing, weights);
  const auto count = static_cast<int64_t>(weights.gate.size()), hidden = x_TD.size(1), width = weights.gate[0].out();
  const auto &gate_up = weights.gate_up_stack, &down = weights.down_stack;
  EK_CHECK(gate_up.defined() && gate_up.sizes() == at::IntArrayRef({count, 2 * width, hidden}) && down.defined() &&
               down.sizes() == at::IntArrayRef({count, hidden, width}),
           kInternal, "engine aten: the matrices of ", count, " experts lie in no stack");
  return aten::experts(x_TD, routing, aten::trained_stack(gate_up, {{weights.gate, 0}, {weights.up, width}}),
                       aten::trained_stack(down, {{weights.down, 0}}), factors, numbers,
                       aten::inner_type(x_TD, compute));
}

at::Tensor experts(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights,
                   const ExpertFactors& factors, const Compute& compute) {
  if (compute.engine == Engine::kAten) {
    auto layer = factors_for_aten(weights, factors);
    aten::pack_layers({&layer, 1}, aten::inner_type(x_TD, compute));
    return experts_by_aten(x_TD, routing, weights, layer, {}, compute);
  }
  check(x_TD, routing, weights);
  const auto dtype = x_TD.scalar_type();
  const auto count = static_cast<int64_t>(weights.gate.size());
  const int64_t hidden = x_TD.size(1), width = weights.gate[0].out();
  variable_list inputs{x_TD.contiguous(), routing.weights.to(dtype).contiguous(), routing.experts.contiguous()};
  // Autograd accepts no undefined tensors: absent factors are empty tensors.
  inputs.resize(kFirstMatrix, at::empty({0}, x_TD.options()));
  const auto settings = c10::make_intrusive<Settings>();
  settings->scalings.assign(kProjections, 1.0);
  settings->products = compute.products;
  const std::array sites{factors.gate, factors.up, factors.down};
  for (size_t p = 0; p < kProjections; ++p) {
    take_factors(inputs, p, sites[p], count, p == kDown ? width : hidden, p == kDown ? hidden : width);
    if (sites[p].adapter) settings->scalings[p] = sites[p].adapter->scaling;
  }
  for (const auto* matrices : {&weights.gate, &weights.up, &weights.down})
    for (const auto& weight : *matrices) {
      inputs.push_back(weight.values_OI);
      if (weight.scales_O.defined()) settings->scales.push_back(weight.scales_O);
    }
  EK_CHECK(settings->scales.empty() || settings->scales.size() == kProjections * weights.gate.size(), kShape,
           "experts: ", settings->scales.size(), " of ", kProjections * weights.gate.size(), " matrices are in int8");
  settings->keep = c10::GradMode::is_enabled() &&
                   std::any_of(inputs.begin(), inputs.end(), [](const auto& t) { return t.requires_grad(); });
  return ExpertsNode::apply(at::TensorList(inputs), settings);
}

}  // namespace evenkeel::nn
