#include "nn/experts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "nn/kernels/expert_slots.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/vector.h"

namespace evenkeel {
namespace {

using kernels::ExpertSlots;
using kernels::Op;
using kernels::Scratch;
using kernels::StoredMatrix;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Positions of the node's tensors among its inputs, in the order of apply().
enum Projection : size_t { kGate, kUp, kDown, kProjections };
// Factors beside a projection: the adapter, and the standing change of the base, which gets no gradient.
enum Beside : size_t { kAdapter, kChange, kBeside };
enum Input : size_t { kX, kWeights, kExperts, kFirstFactor, kFirstMatrix = kFirstFactor + 2 * kProjections * kBeside };

constexpr size_t factor_a(size_t projection, size_t beside) {
  return kFirstFactor + 2 * (projection * kBeside + beside);
}
constexpr size_t factor_b(size_t projection, size_t beside) { return factor_a(projection, beside) + 1; }

// One projection's stacked factors as raw memory; absent when rank is 0.
template <typename T>
struct StackedLora {
  const T *a = nullptr, *b = nullptr;  // [E, r, in], [E, out, r]
  T *da = nullptr, *db = nullptr;      // null when no gradient is asked for
  int64_t rank = 0, in = 0, out = 0;
  T scaling = 1;
  const T* a_of(int64_t e) const { return a + e * rank * in; }
  const T* b_of(int64_t e) const { return b + e * out * rank; }
};

// What a call says besides its tensors.
struct Settings {
  std::vector<double> scalings;  // of the adapters, by projection
  MatmulPath path;
};

// Everything one pass needs; the same for all experts.
template <typename T>
struct Pass {
  const ExpertSlots& slots;
  int64_t top_k, hidden, width;
  const T *x, *weights;
  T *g, *u;  // [S, F], outputs of gate and up by slot
  std::array<std::array<StackedLora<T>, kBeside>, kProjections> lora;
  std::array<std::vector<StoredMatrix>, kProjections> matrices;
};

template <typename T>
struct Workspace {
  kernels::ProductScratch<T> product;
  Scratch<T> x, h, dh, du, dy, small, smaller;
};

template <typename T>
const T* gather(const T* rows, const ExpertSlots& slots, int64_t e, int64_t width, Scratch<T>& scratch) {
  T* out = scratch.at_least(slots.rows(e) * width);
  for (int64_t i = 0; i < slots.rows(e); ++i) {
    const T* row = rows + slots.token[static_cast<size_t>(slots.first(e) + i)] * width;
    std::copy(row, row + width, out + i * width);
  }
  return out;
}

// y += scaling * (x A^T) B^T
template <typename T>
void add_product(const StackedLora<T>& lora, int64_t e, const T* x, int64_t rows, T* y, Scratch<T>& small) {
  if (lora.rank == 0) return;
  T* xa = small.at_least(rows * lora.rank);
  kernels::gemm(Op::kNone, Op::kTranspose, rows, lora.rank, lora.in, T(1), x, lora.in, lora.a_of(e), lora.in, T(0), xa,
                lora.rank);
  kernels::gemm(Op::kNone, Op::kTranspose, rows, lora.out, lora.rank, lora.scaling, xa, lora.rank, lora.b_of(e),
                lora.rank, T(1), y, lora.out);
}

// y += what stands beside one projection.
template <typename T>
void add_lora(const std::array<StackedLora<T>, kBeside>& beside, int64_t e, const T* x, int64_t rows, T* y,
              Scratch<T>& small) {
  for (const auto& lora : beside) add_product(lora, e, x, rows, y, small);
}

// Backward of add_product: dx += scaling * (dy B) A, and the gradients of A and B. `row_weights`, when given, multiply
// the rows of dy in the gradients of A and B but not in dx.
template <typename T>
void product_backward(const StackedLora<T>& lora, int64_t e, const T* x, const T* dy, const T* row_weights,
                      int64_t rows, T* dx, Workspace<T>& workspace) {
  if (lora.rank == 0) return;
  const int64_t r = lora.rank;
  T* dy_b = workspace.small.at_least(rows * r);
  kernels::gemm(Op::kNone, Op::kNone, rows, r, lora.out, lora.scaling, dy, lora.out, lora.b_of(e), r, T(0), dy_b, r);
  if (dx)
    kernels::gemm(Op::kNone, Op::kNone, rows, lora.in, r, T(1), dy_b, r, lora.a_of(e), lora.in, T(1), dx, lora.in);
  const auto weigh = [&](T* m) {
    for (int64_t i = 0; row_weights && i < rows; ++i) kernels::scaled_copy(row_weights[i], m + i * r, m + i * r, r);
  };
  if (lora.da) {
    weigh(dy_b);
    kernels::gemm(Op::kTranspose, Op::kNone, r, lora.in, rows, T(1), dy_b, r, x, lora.in, T(0),
                  lora.da + e * r * lora.in, lora.in);
  }
  if (lora.db) {
    T* xa = workspace.smaller.at_least(rows * r);
    kernels::gemm(Op::kNone, Op::kTranspose, rows, r, lora.in, lora.scaling, x, lora.in, lora.a_of(e), lora.in, T(0),
                  xa, r);
    weigh(xa);
    kernels::gemm(Op::kTranspose, Op::kNone, lora.out, r, rows, T(1), dy, lora.out, xa, r, T(0),
                  lora.db + e * lora.out * r, r);
  }
}

template <typename T>
void lora_backward(const std::array<StackedLora<T>, kBeside>& beside, int64_t e, const T* x, const T* dy,
                   const T* row_weights, int64_t rows, T* dx, Workspace<T>& workspace) {
  for (const auto& lora : beside) product_backward(lora, e, x, dy, row_weights, rows, dx, workspace);
}

// y_slot = down(silu(gate(x)) * up(x)), not yet weighted.
template <typename T>
void expert_forward(const Pass<T>& pass, int64_t e, T* y_slots, Workspace<T>& workspace) {
  const int64_t rows = pass.slots.rows(e), first = pass.slots.first(e);
  const T* x = gather(pass.x, pass.slots, e, pass.hidden, workspace.x);
  T *g = pass.g + first * pass.width, *u = pass.u + first * pass.width, *y = y_slots + first * pass.hidden;
  const auto matrix = [&](Projection p) -> const StoredMatrix& { return pass.matrices[p][static_cast<size_t>(e)]; };
  kernels::times_transposed(x, rows, matrix(kGate), g, false, workspace.product);
  add_lora(pass.lora[kGate], e, x, rows, g, workspace.small);
  kernels::times_transposed(x, rows, matrix(kUp), u, false, workspace.product);
  add_lora(pass.lora[kUp], e, x, rows, u, workspace.small);
  T* h = workspace.h.at_least(rows * pass.width);
  kernels::swiglu(g, u, h, rows * pass.width);
  kernels::times_transposed(h, rows, matrix(kDown), y, false, workspace.product);
  add_lora(pass.lora[kDown], e, h, rows, y, workspace.small);
}

// What backward writes; null where no gradient is asked for.
template <typename T>
struct Gradients {
  T* dx_slots = nullptr;                                // [S, D]
  T* dweights = nullptr;                                // [T, K]
  std::array<std::vector<T*>, kProjections> dmatrices;  // [E] x [out, in], empty when frozen
};

template <typename T>
void matrix_gradient(const std::vector<T*>& out, int64_t e, const T* dy, int64_t dy_width, const T* x, int64_t x_width,
                     int64_t rows) {
  if (out.empty() || !out[static_cast<size_t>(e)]) return;
  kernels::gemm(Op::kTranspose, Op::kNone, dy_width, x_width, rows, T(1), dy, dy_width, x, x_width, T(0),
                out[static_cast<size_t>(e)], x_width);
}

// The gradient of a gate weight is <down(h), dy> = <h, dh> with dh = dy W_down, so the down output is never needed.
template <typename T>
void expert_backward(const Pass<T>& pass, int64_t e, const T* dy_TD, const Gradients<T>& grads,
                     Workspace<T>& workspace) {
  const int64_t rows = pass.slots.rows(e), first = pass.slots.first(e), width = pass.width;
  const auto matrix = [&](Projection p) -> const StoredMatrix& { return pass.matrices[p][static_cast<size_t>(e)]; };
  const T* x = gather(pass.x, pass.slots, e, pass.hidden, workspace.x);
  const T* dy = gather(dy_TD, pass.slots, e, pass.hidden, workspace.dy);
  T* h = workspace.h.at_least(rows * width);
  T* dh = workspace.dh.at_least(rows * width);
  T* du = workspace.du.at_least(rows * width);
  std::vector<T> row_weights(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i)
    row_weights[static_cast<size_t>(i)] = pass.weights[pass.slots.choice[static_cast<size_t>(first + i)]];

  kernels::swiglu(pass.g + first * width, pass.u + first * width, h, rows * width);
  kernels::times(dy, rows, matrix(kDown), dh, false, workspace.product);
  lora_backward(pass.lora[kDown], e, static_cast<const T*>(h), dy, row_weights.data(), rows, dh, workspace);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = (first + i) * width;
    const T dweight =
        kernels::swiglu_backward(dh + i * width, pass.g + at, pass.u + at, row_weights[static_cast<size_t>(i)],
                                 h + i * width, dh + i * width, du + i * width, width);
    if (grads.dweights) grads.dweights[pass.slots.choice[static_cast<size_t>(first + i)]] = dweight;
  }
  const T* dg = dh;
  T* dx = grads.dx_slots ? grads.dx_slots + first * pass.hidden : nullptr;
  if (dx) {
    kernels::times(dg, rows, matrix(kGate), dx, false, workspace.product);
    kernels::times(static_cast<const T*>(du), rows, matrix(kUp), dx, true, workspace.product);
  }
  lora_backward<T>(pass.lora[kGate], e, x, dg, nullptr, rows, dx, workspace);
  lora_backward<T>(pass.lora[kUp], e, x, du, nullptr, rows, dx, workspace);
  matrix_gradient<T>(grads.dmatrices[kGate], e, dg, width, x, pass.hidden, rows);
  matrix_gradient<T>(grads.dmatrices[kUp], e, du, width, x, pass.hidden, rows);
  if (!grads.dmatrices[kDown].empty()) {
    for (int64_t i = 0; i < rows; ++i)
      kernels::scaled_copy(row_weights[static_cast<size_t>(i)], h + i * width, h + i * width, width);
    matrix_gradient<T>(grads.dmatrices[kDown], e, dy, pass.hidden, h, width, rows);
  }
}

// out[t] = sum over k, in the order of k, of weight * rows[slot of (t, k)]; weights null means 1.
template <typename T>
void combine(const ExpertSlots& slots, int64_t top_k, int64_t width, const T* rows, const T* weights, T* out) {
  const auto tokens = static_cast<int64_t>(slots.token.size()) / top_k;
  at::parallel_for(0, tokens, kernels::row_grain(width * top_k), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      T* row = out + t * width;
      for (int64_t k = 0; k < top_k; ++k) {
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

// inputs: the tensors in Input order, then 3 E matrices.
template <typename T>
Pass<T> make_pass(const ExpertSlots& slots, const variable_list& inputs, const Settings& settings,
                  const at::Tensor& g_SF, const at::Tensor& u_SF) {
  const size_t experts = (inputs.size() - kFirstMatrix) / kProjections;
  Pass<T> pass{.slots = slots,
               .top_k = inputs[kWeights].size(1),
               .hidden = inputs[kX].size(1),
               .width = g_SF.size(1),
               .x = inputs[kX].const_data_ptr<T>(),
               .weights = inputs[kWeights].const_data_ptr<T>(),
               .g = g_SF.mutable_data_ptr<T>(),
               .u = u_SF.mutable_data_ptr<T>(),
               .lora = {},
               .matrices = {}};
  for (size_t p = 0; p < kProjections; ++p) {
    for (size_t e = 0; e < experts; ++e)
      pass.matrices[p].push_back(StoredMatrix::of(inputs[kFirstMatrix + p * experts + e], settings.path));
    for (size_t i = 0; i < kBeside; ++i) {
      const auto &a = inputs[factor_a(p, i)], &b = inputs[factor_b(p, i)];
      if (a.numel() == 0) continue;
      pass.lora[p][i] = {.a = a.const_data_ptr<T>(),
                         .b = b.const_data_ptr<T>(),
                         .da = nullptr,
                         .db = nullptr,
                         .rank = a.size(1),
                         .in = a.size(2),
                         .out = b.size(1),
                         .scaling = static_cast<T>(i == kAdapter ? settings.scalings[p] : 1.0)};
    }
  }
  return pass;
}

// A gradient for stacked factors: every expert with a token writes its slice, the idle ones are zeroed here.
template <typename T>
T* stacked_gradient(const at::Tensor& like, const ExpertSlots& slots, at::Tensor& out) {
  out = at::empty_like(like);
  for (int64_t e = 0; e < like.size(0); ++e)
    if (slots.rows(e) == 0) out[e].zero_();
  return out.mutable_data_ptr<T>();
}

template <typename T>
at::Tensor forward_as(const ExpertSlots& slots, const variable_list& inputs, const Settings& settings, at::Tensor& g_SF,
                      at::Tensor& u_SF) {
  const auto& x_TD = inputs[kX];
  const auto total = static_cast<int64_t>(slots.token.size());
  const int64_t width = inputs[kFirstMatrix].size(0);
  g_SF = at::empty({total, width}, x_TD.options());
  u_SF = at::empty({total, width}, x_TD.options());
  auto y_SD = at::empty({total, x_TD.size(1)}, x_TD.options()), y_TD = at::empty_like(x_TD);
  const auto pass = make_pass<T>(slots, inputs, settings, g_SF, u_SF);
  T* y_slots = y_SD.template mutable_data_ptr<T>();
  kernels::for_each_expert<Workspace<T>>(slots, 3 * pass.hidden * pass.width, [&](int64_t e, Workspace<T>& workspace) {
    expert_forward(pass, e, y_slots, workspace);
  });
  combine<T>(slots, pass.top_k, pass.hidden, y_slots, pass.weights, y_TD.template mutable_data_ptr<T>());
  return y_TD;
}

template <typename T>
variable_list backward_as(const AutogradContext* ctx, const ExpertSlots& slots, const variable_list& inputs,
                          const Settings& settings, const at::Tensor& g_SF, const at::Tensor& u_SF,
                          const at::Tensor& dy_TD) {
  variable_list out(inputs.size());
  auto pass = make_pass<T>(slots, inputs, settings, g_SF, u_SF);
  Gradients<T> grads;
  at::Tensor dx_SD;
  if (ctx->needs_input_grad(kX)) {
    dx_SD = at::empty({g_SF.size(0), pass.hidden}, dy_TD.options());
    grads.dx_slots = dx_SD.mutable_data_ptr<T>();
  }
  if (ctx->needs_input_grad(kWeights)) {
    out[kWeights] = at::empty_like(inputs[kWeights]);
    grads.dweights = out[kWeights].template mutable_data_ptr<T>();
  }
  const size_t experts = (inputs.size() - kFirstMatrix) / kProjections;
  for (size_t p = 0; p < kProjections; ++p) {
    const size_t a = factor_a(p, kAdapter), b = factor_b(p, kAdapter), matrix = kFirstMatrix + p * experts;
    if (ctx->needs_input_grad(a)) pass.lora[p][kAdapter].da = stacked_gradient<T>(inputs[a], slots, out[a]);
    if (ctx->needs_input_grad(b)) pass.lora[p][kAdapter].db = stacked_gradient<T>(inputs[b], slots, out[b]);
    for (size_t e = 0; e < experts; ++e) {
      if (!ctx->needs_input_grad(matrix + e)) continue;
      out[matrix + e] =
          slots.rows(static_cast<int64_t>(e)) ? at::empty_like(inputs[matrix + e]) : at::zeros_like(inputs[matrix + e]);
      grads.dmatrices[p].resize(experts, nullptr);
      grads.dmatrices[p][e] = out[matrix + e].template mutable_data_ptr<T>();
    }
  }
  kernels::for_each_expert<Workspace<T>>(slots, 6 * pass.hidden * pass.width, [&](int64_t e, Workspace<T>& workspace) {
    expert_backward<T>(pass, e, dy_TD.const_data_ptr<T>(), grads, workspace);
  });
  if (grads.dx_slots) {
    out[kX] = at::empty_like(inputs[kX]);
    combine<T>(slots, pass.top_k, pass.hidden, grads.dx_slots, nullptr, out[kX].template mutable_data_ptr<T>());
  }
  return out;
}

struct ExpertsNode : torch::autograd::Function<ExpertsNode> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList tensors, const Settings& settings) {
    variable_list inputs(tensors.begin(), tensors.end());
    const auto num_experts = static_cast<int64_t>((inputs.size() - kFirstMatrix) / kProjections);
    const auto slots = sort_slots(inputs[kExperts], num_experts);
    at::Tensor g_SF, u_SF;
    const auto y_TD = inputs[kX].scalar_type() == at::kDouble ? forward_as<double>(slots, inputs, settings, g_SF, u_SF)
                                                              : forward_as<float>(slots, inputs, settings, g_SF, u_SF);
    ctx->saved_data["scalings"] = settings.scalings;
    ctx->saved_data["native"] = settings.path == MatmulPath::kNative;
    inputs.push_back(g_SF);
    inputs.push_back(u_SF);
    ctx->save_for_backward(std::move(inputs));
    return y_TD;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    auto inputs = ctx->get_saved_variables();
    const Settings settings{ctx->saved_data["scalings"].toDoubleVector(),
                            ctx->saved_data["native"].toBool() ? MatmulPath::kNative : MatmulPath::kWiden};
    const auto u_SF = inputs.back(), g_SF = inputs[inputs.size() - 2];
    inputs.resize(inputs.size() - 2);
    const auto num_experts = static_cast<int64_t>((inputs.size() - kFirstMatrix) / kProjections);
    const auto slots = sort_slots(inputs[kExperts], num_experts);
    const auto dy_TD = grads[0].contiguous();
    auto out = dy_TD.scalar_type() == at::kDouble ? backward_as<double>(ctx, slots, inputs, settings, g_SF, u_SF, dy_TD)
                                                  : backward_as<float>(ctx, slots, inputs, settings, g_SF, u_SF, dy_TD);
    out.emplace_back();
    return out;
  }
};

void check(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights) {
  const size_t experts = weights.gate.size();
  EK_CHECK(experts > 0 && weights.up.size() == experts && weights.down.size() == experts, kShape, "experts: ", experts,
           " gate, ", weights.up.size(), " up and ", weights.down.size(), " down matrices");
  const int64_t hidden = x_TD.size(1), width = weights.gate[0].size(0);
  for (size_t e = 0; e < experts; ++e)
    EK_CHECK(weights.gate[e].sizes() == at::IntArrayRef({width, hidden}) &&
                 weights.up[e].sizes() == at::IntArrayRef({width, hidden}) &&
                 weights.down[e].sizes() == at::IntArrayRef({hidden, width}),
             kShape, "experts: expert ", e, " has matrices of ", weights.gate[e].sizes(), weights.up[e].sizes(),
             weights.down[e].sizes(), ", x has sizes ", x_TD.sizes());
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
                   const ExpertFactors& beside, MatmulPath path) {
  check(x_TD, routing, weights);
  const auto dtype = x_TD.scalar_type();
  const auto count = static_cast<int64_t>(weights.gate.size());
  const int64_t hidden = x_TD.size(1), width = weights.gate[0].size(0);
  variable_list inputs{x_TD.contiguous(), routing.weights.to(dtype).contiguous(), routing.experts.contiguous()};
  // The graph takes no undefined tensors: an absent factor is an empty one.
  inputs.resize(kFirstMatrix, at::empty({0}, x_TD.options()));
  Settings settings{std::vector<double>(kProjections, 1.0), path};
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
    inputs.insert(inputs.end(), matrices->begin(), matrices->end());
  return ExpertsNode::apply(at::TensorList(inputs), settings);
}

}  // namespace evenkeel
