#include "nn/experts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "nn/gradients.h"
#include "nn/kernels/expert_pass.h"
#include "nn/kernels/expert_slots.h"
#include "nn/kernels/vector.h"

namespace evenkeel {
namespace {

using kernels::Beside;
using kernels::ExpertSlots;
using kernels::ExpertView;
using kernels::ExpertWorkspace;
using kernels::Held;
using kernels::kAdapter;
using kernels::kBeside;
using kernels::kChange;
using kernels::kDown;
using kernels::kProjections;
using kernels::Scratch;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Positions of the node's tensors among its inputs, in the order of apply(); what is kept follows them.
enum Input : size_t { kX, kWeights, kExperts, kFirstFactor, kFirstMatrix = kFirstFactor + 2 * kProjections * kBeside };
enum KeptRows : size_t { kKeptG, kKeptU, kKeptXA, kKeptRows };

constexpr size_t factor_a(size_t projection, size_t beside) {
  return kFirstFactor + 2 * (projection * kBeside + beside);
}
constexpr size_t factor_b(size_t projection, size_t beside) { return factor_a(projection, beside) + 1; }

// What a call says besides its tensors.
struct Settings {
  std::vector<double> scalings;  // of the adapters, by projection
  ProductTable products;
  std::vector<at::Tensor> scales;  // of the matrices, in their order; empty where they have none
  bool keep = true;                // for a backward pass
};

// Everything one pass needs; the same for all experts. `lora` is that of expert 0.
template <typename T>
struct Pass {
  const ExpertSlots& slots;
  ProductTable products;
  int64_t top_k, hidden, width;
  const T *x, *weights;
  T *g, *u, *xa;  // by slot: [S, F], [S, F], [S, R]; null: not kept
  int64_t ranks;  // R
  std::array<std::array<kernels::LoraView<T>, kBeside>, kProjections> lora;
  std::array<std::vector<kernels::StoredMatrix>, kProjections> matrices;
  std::vector<uint8_t> live;  // [T], whether a gradient flows through a token's row; empty: through all

  bool is_live(int64_t token) const { return live.empty() || live[static_cast<size_t>(token)]; }

  ExpertView<T> expert(int64_t e) const {
    ExpertView<T> view;
    for (size_t p = 0; p < kProjections; ++p) {
      view.weights[p] = matrices[p][static_cast<size_t>(e)];
      for (size_t i = 0; i < kBeside; ++i) {
        auto factors = lora[p][i];
        const int64_t a = e * factors.rank * factors.in, b = e * factors.out * factors.rank;
        factors.a += a;
        factors.b += b;
        if (factors.da) factors.da += a;
        if (factors.db) factors.db += b;
        view.lora[p][i] = factors;
      }
    }
    return view;
  }
};

// The slots of an expert whose token is live, in workspace.slots.
template <typename T>
std::span<const int64_t> live_slots(const Pass<T>& pass, int64_t e, ExpertWorkspace<T>& workspace) {
  workspace.slots.clear();
  for (int64_t i = 0; i < pass.slots.rows(e); ++i) {
    const int64_t slot = pass.slots.first(e) + i;
    if (pass.is_live(pass.slots.token[static_cast<size_t>(slot)])) workspace.slots.push_back(slot);
  }
  return workspace.slots;
}

// Rows of [T, width] by the tokens of slots.
template <typename T>
T* gather_tokens(const T* rows, const Pass<T>& pass, std::span<const int64_t> slots, int64_t width,
                 Scratch<T>& scratch) {
  T* out = scratch.at_least(static_cast<int64_t>(slots.size()) * width);
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy_n(rows + pass.slots.token[static_cast<size_t>(slots[i])] * width, width,
                out + static_cast<int64_t>(i) * width);
  return out;
}

// Rows of [S, width] by slot: where they lie, when they are all of an expert's, else copies.
template <typename T>
T* slot_rows(T* rows, const Pass<T>& pass, int64_t e, std::span<const int64_t> slots, int64_t width,
             Scratch<T>& scratch) {
  if (static_cast<int64_t>(slots.size()) == pass.slots.rows(e)) return rows + pass.slots.first(e) * width;
  T* out = scratch.at_least(static_cast<int64_t>(slots.size()) * width);
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy_n(rows + slots[i] * width, width, out + static_cast<int64_t>(i) * width);
  return out;
}

// Where the results of an expert go: with one expert per token straight to its tokens, weighted, else to `by_slot`,
// whose rows are combined when all experts are done.
template <typename T>
struct Destination {
  T *by_token, *by_slot;  // [T, D]; [S, D] or null
  const T* weights;       // [T, K]; null: 1

  void put(const Pass<T>& pass, std::span<const int64_t> slots, const T* rows) const {
    const int64_t width = pass.hidden;
    for (size_t i = 0; i < slots.size(); ++i, rows += width) {
      if (by_slot) {
        std::copy_n(rows, width, by_slot + slots[i] * width);
        continue;
      }
      const int64_t token = pass.slots.token[static_cast<size_t>(slots[i])];
      kernels::scaled_copy(weights ? weights[token] : T(1), rows, by_token + token * width, width);
    }
  }
  // Room for the rows of an expert: their own place, where that is whole.
  T* room(const Pass<T>& pass, int64_t e, std::span<const int64_t> slots, Scratch<T>& scratch) const {
    const auto rows = static_cast<int64_t>(slots.size());
    if (by_slot && rows == pass.slots.rows(e)) return by_slot + pass.slots.first(e) * pass.hidden;
    return scratch.at_least(rows * pass.hidden);
  }
};

template <typename T>
void forward_one(const Pass<T>& pass, int64_t e, const Destination<T>& out, ExpertWorkspace<T>& workspace) {
  const auto slots = live_slots(pass, e, workspace);
  const auto rows = static_cast<int64_t>(slots.size()), first = pass.slots.first(e);
  const T* x = gather_tokens(pass.x, pass, slots, pass.hidden, workspace.x);
  const bool keep = pass.g != nullptr;
  const kernels::ExpertKept<T> kept{keep ? pass.g + first * pass.width : workspace.g.at_least(rows * pass.width),
                                    keep ? pass.u + first * pass.width : workspace.u.at_least(rows * pass.width),
                                    keep ? pass.xa + first * pass.ranks : workspace.xa.at_least(rows * pass.ranks)};
  T* y = out.room(pass, e, slots, workspace.y);
  expert_forward(pass.expert(e), pass.products, x, rows, kept, y, workspace);
  if (!out.by_slot) out.put(pass, slots, y);
}

// What backward writes; null where no gradient is asked for.
template <typename T>
struct Gradients {
  Destination<T> dx{};
  T* dweights = nullptr;                                // [T, K]
  std::array<std::vector<T*>, kProjections> dmatrices;  // [E] x [out, in], empty when frozen
};

template <typename T>
void backward_one(const Pass<T>& pass, int64_t e, const T* dy_TD, const Gradients<T>& grads,
                  ExpertWorkspace<T>& workspace) {
  const auto slots = live_slots(pass, e, workspace);
  const auto rows = static_cast<int64_t>(slots.size());
  if (rows == 0) return;
  const T* x = gather_tokens(pass.x, pass, slots, pass.hidden, workspace.x);
  const T* dy = gather_tokens(dy_TD, pass, slots, pass.hidden, workspace.dy);
  const kernels::ExpertKept<T> kept{slot_rows(pass.g, pass, e, slots, pass.width, workspace.g),
                                    slot_rows(pass.u, pass, e, slots, pass.width, workspace.u),
                                    slot_rows(pass.xa, pass, e, slots, pass.ranks, workspace.xa)};
  const auto choice = [&](int64_t i) { return pass.slots.choice[static_cast<size_t>(slots[static_cast<size_t>(i)])]; };
  workspace.row_weights.resize(2 * slots.size());
  T *weights = workspace.row_weights.data(), *dweights = weights + rows;
  for (int64_t i = 0; i < rows; ++i) weights[i] = pass.weights[choice(i)];
  kernels::ExpertGradients<T> out{.dweights = dweights};
  if (grads.dx.by_token) out.dx = grads.dx.room(pass, e, slots, workspace.y);
  for (size_t p = 0; p < kProjections; ++p)
    if (!grads.dmatrices[p].empty()) out.weights[p] = grads.dmatrices[p][static_cast<size_t>(e)];
  expert_backward<T>(pass.expert(e), pass.products, x, dy, weights, rows, kept, out, workspace);
  for (int64_t i = 0; grads.dweights && i < rows; ++i) grads.dweights[choice(i)] = dweights[i];
  const bool in_place = grads.dx.by_slot && rows == pass.slots.rows(e);
  if (out.dx && !in_place) grads.dx.put(pass, slots, out.dx);
}

// out[t] = sum over k, in the order of k, of weight * rows[slot of (t, k)]; weights null means 1. Tokens that are not
// live get zeros.
template <typename T>
void combine(const Pass<T>& pass, int64_t width, const T* rows, const T* weights, T* out) {
  const auto& slots = pass.slots;
  const int64_t top_k = pass.top_k;
  const auto tokens = static_cast<int64_t>(slots.token.size()) / top_k;
  at::parallel_for(0, tokens, kernels::row_grain(width * top_k), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* row = out + t * width;
      if (!pass.is_live(t)) std::fill_n(row, width, T(0));
      for (int64_t k = 0; k < top_k && pass.is_live(t); ++k) {
        const int64_t choice = t * top_k + k;
        const T* source = rows + slots.slot_of[static_cast<size_t>(choice)] * width;
        const T weight = weights ? weights[choice] : T(1);
        k == 0 ? kernels::scaled_copy(weight, source, row, width) : kernels::axpy(weight, source, row, width);
      }
    }
  });
}

ExpertSlots sort_slots(const at::Tensor& experts_TK, int64_t num_experts) {
  return {std::span(experts_TK.const_data_ptr<int64_t>(), static_cast<size_t>(experts_TK.numel())), experts_TK.size(1),
          num_experts};
}

template <typename T>
kernels::LoraView<T> first_expert(const at::Tensor& a_ERI, const at::Tensor& b_EOR, double scaling) {
  if (a_ERI.numel() == 0) return {};
  return {.a = a_ERI.const_data_ptr<T>(),
          .b = b_EOR.const_data_ptr<T>(),
          .rank = a_ERI.size(1),
          .in = a_ERI.size(2),
          .out = b_EOR.size(1),
          .scaling = static_cast<T>(scaling)};
}

// inputs: the tensors in Input order, then 3 E matrices.
template <typename T>
Pass<T> make_pass(const ExpertSlots& slots, const variable_list& inputs, const Settings& settings) {
  const size_t experts = (inputs.size() - kFirstMatrix) / kProjections;
  Pass<T> pass{.slots = slots,
               .products = settings.products,
               .top_k = inputs[kWeights].size(1),
               .hidden = inputs[kX].size(1),
               .width = inputs[kFirstMatrix].size(0),
               .x = inputs[kX].const_data_ptr<T>(),
               .weights = inputs[kWeights].const_data_ptr<T>(),
               .g = nullptr,
               .u = nullptr,
               .xa = nullptr,
               .ranks = 0,
               .lora = {},
               .matrices = {},
               .live = {}};
  for (size_t p = 0; p < kProjections; ++p) {
    for (size_t e = 0; e < experts; ++e) {
      const size_t i = p * experts + e;
      pass.matrices[p].push_back(kernels::StoredMatrix::of(
          inputs[kFirstMatrix + i], settings.scales.empty() ? at::Tensor() : settings.scales[i]));
    }
    for (size_t i = 0; i < kBeside; ++i)
      pass.lora[p][i] =
          first_expert<T>(inputs[factor_a(p, i)], inputs[factor_b(p, i)], i == kAdapter ? settings.scalings[p] : 1.0);
    pass.ranks += pass.lora[p][kAdapter].rank;
  }
  return pass;
}

template <typename T>
void set_kept(Pass<T>& pass, std::span<const at::Tensor> kept) {
  pass.g = kept[kKeptG].mutable_data_ptr<T>();
  pass.u = kept[kKeptU].mutable_data_ptr<T>();
  pass.xa = kept[kKeptXA].mutable_data_ptr<T>();
}

// Rows by slot on their way to tokens; none with one expert per token.
template <typename T>
struct SlotRows {
  Scratch<T> memory;
};

template <typename T>
at::Tensor forward_as(const ExpertSlots& slots, const variable_list& inputs, const Settings& settings,
                      variable_list& kept) {
  const auto& x_TD = inputs[kX];
  auto pass = make_pass<T>(slots, inputs, settings);
  const auto total = static_cast<int64_t>(slots.token.size());
  if (settings.keep) {
    for (const int64_t width : {pass.width, pass.width, pass.ranks})
      kept.push_back(at::empty({total, width}, x_TD.options()));
    set_kept(pass, kept);
  }
  auto y_TD = at::empty_like(x_TD);
  const Held<SlotRows<T>> by_slot(kernels::kept<SlotRows<T>>());
  const Destination<T> out{y_TD.template mutable_data_ptr<T>(),
                           pass.top_k > 1 ? by_slot->memory.at_least(total * pass.hidden) : nullptr, pass.weights};
  kernels::for_each_expert<ExpertWorkspace<T>>(
      slots, 3 * pass.hidden * pass.width,
      [&](int64_t e, ExpertWorkspace<T>& workspace) { forward_one(pass, e, out, workspace); });
  if (out.by_slot) combine<T>(pass, pass.hidden, out.by_slot, pass.weights, out.by_token);
  return y_TD;
}

// Which tokens a gradient flows through; empty: (nearly) all.
std::vector<uint8_t> live_tokens(const at::Tensor& dy_TD) {
  const auto live = live_rows(dy_TD);
  if (!live) return {};
  std::vector<uint8_t> tokens(static_cast<size_t>(dy_TD.size(0)), 0);
  for (int64_t i = 0; i < live->numel(); ++i) tokens[static_cast<size_t>(live->const_data_ptr<int64_t>()[i])] = 1;
  return tokens;
}

template <typename T>
Gradients<T> gradients_of_matrices(const AutogradContext* ctx, const ExpertSlots& slots, const variable_list& inputs,
                                   variable_list& out) {
  Gradients<T> grads;
  const size_t experts = (inputs.size() - kFirstMatrix) / kProjections;
  for (size_t p = 0; p < kProjections; ++p)
    for (size_t e = 0; e < experts; ++e) {
      const size_t i = kFirstMatrix + p * experts + e;
      if (!ctx->needs_input_grad(i)) continue;
      out[i] = slots.rows(static_cast<int64_t>(e)) ? at::empty_like(inputs[i]) : at::zeros_like(inputs[i]);
      grads.dmatrices[p].resize(experts, nullptr);
      grads.dmatrices[p][e] = out[i].template mutable_data_ptr<T>();
    }
  return grads;
}

template <typename T>
variable_list backward_as(const AutogradContext* ctx, const ExpertSlots& slots, const variable_list& inputs,
                          const Settings& settings, std::span<const at::Tensor> kept, const at::Tensor& dy_TD) {
  variable_list out(inputs.size());
  auto pass = make_pass<T>(slots, inputs, settings);
  set_kept(pass, kept);
  auto grads = gradients_of_matrices<T>(ctx, slots, inputs, out);
  const bool frozen =
      std::all_of(grads.dmatrices.begin(), grads.dmatrices.end(), [](const auto& m) { return m.empty(); });
  if (frozen) pass.live = live_tokens(dy_TD);
  const Held<SlotRows<T>> by_slot(kernels::kept<SlotRows<T>>());
  if (ctx->needs_input_grad(kX)) {
    out[kX] = pass.live.empty() ? at::empty_like(inputs[kX]) : at::zeros_like(inputs[kX]);
    grads.dx.by_token = out[kX].template mutable_data_ptr<T>();
    if (pass.top_k > 1)
      grads.dx.by_slot = by_slot->memory.at_least(static_cast<int64_t>(slots.token.size()) * pass.hidden);
  }
  if (ctx->needs_input_grad(kWeights)) {
    out[kWeights] = at::zeros_like(inputs[kWeights]);
    grads.dweights = out[kWeights].template mutable_data_ptr<T>();
  }
  for (size_t p = 0; p < kProjections; ++p) {
    const size_t a = factor_a(p, kAdapter), b = factor_b(p, kAdapter);
    if (ctx->needs_input_grad(a)) pass.lora[p][kAdapter].da = gradient_place<T>(inputs[a], out[a]);
    if (ctx->needs_input_grad(b)) pass.lora[p][kAdapter].db = gradient_place<T>(inputs[b], out[b]);
  }
  kernels::for_each_expert<ExpertWorkspace<T>>(slots, 6 * pass.hidden * pass.width,
                                               [&](int64_t e, ExpertWorkspace<T>& workspace) {
                                                 backward_one<T>(pass, e, dy_TD.const_data_ptr<T>(), grads, workspace);
                                               });
  if (grads.dx.by_slot) combine<T>(pass, pass.hidden, grads.dx.by_slot, nullptr, grads.dx.by_token);
  return out;
}

struct ExpertsNode : torch::autograd::Function<ExpertsNode> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors, const Settings& settings) {
    variable_list inputs(tensors.begin(), tensors.end()), kept;
    const auto num_experts = static_cast<int64_t>((inputs.size() - kFirstMatrix) / kProjections);
    const auto slots = sort_slots(inputs[kExperts], num_experts);
    const auto y_TD = inputs[kX].scalar_type() == at::kDouble ? forward_as<double>(slots, inputs, settings, kept)
                                                              : forward_as<float>(slots, inputs, settings, kept);
    if (!settings.keep) return y_TD;
    ctx->saved_data["scalings"] = settings.scalings;
    ctx->saved_data["products"] = settings.products.packed();
    ctx->saved_data["scales"] = settings.scales;
    inputs.insert(inputs.end(), kept.begin(), kept.end());
    ctx->save_for_backward(std::move(inputs));
    return y_TD;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto inputs = ctx->get_saved_variables();
    const Settings settings{ctx->saved_data["scalings"].toDoubleVector(),
                            ProductTable::unpacked(ctx->saved_data["products"].toInt()),
                            ctx->saved_data["scales"].toTensorVector()};
    const variable_list kept(inputs.end() - kKeptRows, inputs.end());
    inputs.resize(inputs.size() - kKeptRows);
    const auto num_experts = static_cast<int64_t>((inputs.size() - kFirstMatrix) / kProjections);
    const auto slots = sort_slots(inputs[kExperts], num_experts);
    const auto dy_TD = grads[0].contiguous();
    auto out = dy_TD.scalar_type() == at::kDouble ? backward_as<double>(ctx, slots, inputs, settings, kept, dy_TD)
                                                  : backward_as<float>(ctx, slots, inputs, settings, kept, dy_TD);
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

void check(const LoraFactors& lora, std::string_view projection, int64_t experts, int64_t in, int64_t out) {
  const int64_t rank = lora.rank();
  EK_CHECK(
      lora.a.sizes() == at::IntArrayRef({experts, rank, in}) && lora.b.sizes() == at::IntArrayRef({experts, out, rank}),
      kShape, "experts: adapter of ", projection, " has a of ", lora.a.sizes(), " and b of ", lora.b.sizes(),
      ", expected [", experts, ", r, ", in, "] and [", experts, ", ", out, ", r]");
}

}  // namespace

at::Tensor experts(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights,
                   const ExpertFactors& beside, const ProductTable& products) {
  check(x_TD, routing, weights);
  const auto dtype = x_TD.scalar_type();
  const auto count = static_cast<int64_t>(weights.gate.size());
  const int64_t hidden = x_TD.size(1), width = weights.gate[0].out();
  variable_list inputs{x_TD.contiguous(), routing.weights.to(dtype).contiguous(), routing.experts.contiguous()};
  // The graph takes no undefined tensors: an absent factor is an empty one.
  inputs.resize(kFirstMatrix, at::empty({0}, x_TD.options()));
  Settings settings{std::vector<double>(kProjections, 1.0), products, {}};
  const std::array sites{beside.gate, beside.up, beside.down};
  constexpr std::array<std::string_view, kProjections> kNames{"gate_proj", "up_proj", "down_proj"};
  for (size_t p = 0; p < kProjections; ++p) {
    const std::array factors{sites[p].adapter, sites[p].change};
    for (size_t i = 0; i < kBeside; ++i) {
      if (!factors[i]) continue;
      const auto& lora = *factors[i];
      check(lora, kNames[p], count, p == kDown ? width : hidden, p == kDown ? hidden : width);
      inputs[factor_a(p, i)] = lora.a.to(dtype).contiguous();
      inputs[factor_b(p, i)] = (lora.core.defined() ? at::matmul(lora.b, lora.core) : lora.b).to(dtype).contiguous();
    }
    if (sites[p].adapter) settings.scalings[p] = sites[p].adapter->scaling;
  }
  for (const auto* matrices : {&weights.gate, &weights.up, &weights.down})
    for (const auto& weight : *matrices) {
      inputs.push_back(weight.values_OI);
      if (weight.scales_O.defined()) settings.scales.push_back(weight.scales_O);
    }
  settings.keep = c10::GradMode::is_enabled() &&
                  std::any_of(inputs.begin(), inputs.end(), [](const auto& t) { return t.requires_grad(); });
  return ExpertsNode::apply(at::TensorList(inputs), settings);
}

}  // namespace evenkeel
