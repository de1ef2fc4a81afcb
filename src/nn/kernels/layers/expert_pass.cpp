#include "nn/kernels/layers/expert_pass.h"

#include <utility>

#include "base/system/parallel.h"
#include "nn/kernels/matmul/blas_gemm.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn::kernels {
namespace {

// Returns the first column of a projection in [N, R].
template <typename T>
int64_t first_column(const ExpertView<T>& expert, size_t projection, LoraBranch which) {
  int64_t column = 0;
  for (size_t p = 0; p < projection; ++p) column += expert.lora[p][which].rank;
  return column;
}

// The factors of a projection and its columns of [N, R].
template <typename T>
struct LoraInput {
  const LoraView<T>& lora;
  T* xa;
  int64_t stride;
};
template <typename T>
LoraInput<T> lora_input(const ExpertView<T>& expert, size_t projection, LoraBranch which, T* xa) {
  return {expert.lora[projection][which], xa + first_column(expert, projection, which), expert.rank_of(which)};
}

// A projection and its result. Projections with the same input are one grouped product.
template <typename T>
struct Projected {
  Projection projection;
  T* y;
};
template <typename T>
void project(const ExpertView<T>& expert, const MatmulTable& products, const ActivationsOf<T>& x,
             std::initializer_list<Projected<T>> wanted, T* adapter_xa, ExpertWorkspace<T>& workspace) {
  T* change_xa = workspace.change_xa.at_least(x.rows * expert.rank_of(kChange));
  std::vector<GroupedOperandOf<T>> lora_products, outputs;
  for (const auto& [p, y] : wanted) {
    auto& output = outputs.emplace_back(GroupedOperandOf<T>{expert.weights[p], {y, expert.weights[p].out}});
    for (const auto which : {kAdapter, kChange}) {
      const auto inner = lora_input(expert, p, which, which == kAdapter ? adapter_xa : change_xa);
      if (inner.lora.rank == 0) continue;
      lora_products.push_back(lora_a_operand(inner.lora, inner.xa, inner.stride));
      output.epilogues.push_back(lora_b_epilogue<T>(inner.lora, inner.xa, inner.stride, x.rows));
    }
  }
  matmul_nt<T>(MatmulKernel::kFp32Exact, x, lora_products, workspace.product);
  matmul_nt<T>(products.at(GemmContext::kExpert, Direction::kForward, x.rows), x, outputs, workspace.product);
}

template <typename T>
struct BackwardPass {
  const ExpertView<T>& expert;
  MatmulKernel kernel;
  int64_t rows;
  T* xa;
  std::array<T*, kLoraBranches> dy_b;  // [N, R] per branch, the projections one after the other
  ExpertWorkspace<T>& workspace;

  T* dy_b_of(Projection p, LoraBranch which) const { return dy_b[which] + rows * first_column(expert, p, which); }
  // Computes dx (+)= dy W + epilogues.
  void input_gradient(Projection p, const T* dy, T* dx, bool add, std::vector<LowRankEpilogueOf<T>> epilogues) const {
    const auto& w = expert.weights[p];
    matmul_nn<T>(kernel, {dy, rows, w.out}, {w, {dx, w.in, add}, std::move(epilogues)}, workspace.product);
  }
  // Computes scaling dy B of each LoRA branch, and appends the epilogue that adds its term to dx.
  void append_epilogues(Projection p, const T* dy, std::vector<LowRankEpilogueOf<T>>& epilogues) const {
    for (const auto which : {kChange, kAdapter}) {
      const auto& lora = expert.lora[p][which];
      if (lora.rank == 0) continue;
      rank_gradient(lora, dy, rows, dy_b_of(p, which), workspace.product);
      epilogues.push_back(lora_a_epilogue<T>(lora, dy_b_of(p, which), rows));
    }
  }
  // Computes the gradients of the adapter's factors. Null `row_weights`: dy includes them.
  void adapter_gradients(Projection p, const T* x, const T* dy, const T* row_weights) const {
    const auto inner = lora_input(expert, p, kAdapter, xa);
    if (inner.lora.rank == 0) return;
    factor_gradients(inner.lora, {rows, x, dy, inner.xa, inner.stride, dy_b_of(p, kAdapter), row_weights},
                     workspace.lora, workspace.product);
  }
};

template <typename T>
void weight_gradient(T* out, const T* dy, int64_t dy_width, const T* x, int64_t x_width, int64_t rows) {
  if (out)
    blas_gemm(Op::kTranspose, Op::kNone, dy_width, x_width, rows, T(1), dy, dy_width, x, x_width, T(0), out, x_width);
}

}  // namespace

template <typename T>
void expert_forward(const ExpertView<T>& expert, const MatmulTable& products, const T* x, int64_t rows,
                    const SavedActivations<T>& saved, T* y, ExpertWorkspace<T>& workspace) {
  const int64_t hidden = expert.hidden(), width = expert.width();
  project<T>(expert, products, {x, rows, hidden}, {{kGate, saved.g}, {kUp, saved.u}}, saved.xa, workspace);
  T* h = workspace.h.at_least(rows * width);
  for_each_range(rows, row_grain(width), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * width;
    swiglu<T>(saved.g + at, saved.u + at, h + at, (end - begin) * width);
  });
  project<T>(expert, products, {h, rows, width}, {{kDown, y}}, saved.xa, workspace);
}

template <typename T>
void expert_backward(const ExpertView<T>& expert, const MatmulTable& products, const T* x, const T* dy,
                     const T* row_weights, int64_t rows, const SavedActivations<T>& saved,
                     const ExpertGradients<T>& grads, ExpertWorkspace<T>& workspace) {
  const int64_t hidden = expert.hidden(), width = expert.width();
  T* h = workspace.h.at_least(rows * width);
  T* dh = workspace.dh.at_least(rows * width);
  T* du = workspace.du.at_least(rows * width);
  const BackwardPass<T> pass{expert,
                             products.at(GemmContext::kExpert, Direction::kBackward, rows),
                             rows,
                             saved.xa,
                             {workspace.dy_b.at_least(rows * expert.rank_of(kAdapter)),
                              workspace.change_dy_b.at_least(rows * expert.rank_of(kChange))},
                             workspace};
  std::vector<LowRankEpilogueOf<T>> to_dh, to_dx;
  pass.append_epilogues(kDown, dy, to_dh);
  pass.input_gradient(kDown, dy, dh, false, std::move(to_dh));
  T* dg = dh;
  for_each_range(rows, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin, at = n * width; n < end; ++n, at += width) {
      const T dweight =
          swiglu_backward<T>(dh + at, saved.g + at, saved.u + at, row_weights[n], h + at, dg + at, du + at, width);
      if (grads.dweights) grads.dweights[n] = dweight;
    }
  });
  pass.adapter_gradients(kDown, h, dy, row_weights);
  pass.append_epilogues(kGate, dg, to_dx);
  pass.append_epilogues(kUp, du, to_dx);
  if (grads.dx) pass.input_gradient(kGate, dg, grads.dx, false, {});
  if (grads.dx) pass.input_gradient(kUp, du, grads.dx, true, std::move(to_dx));
  for (const auto& [p, dp] : {std::pair{kGate, dg}, std::pair{kUp, du}}) {
    pass.adapter_gradients(p, x, dp, nullptr);
    weight_gradient<T>(grads.weights[p], dp, width, x, hidden, rows);
  }
  if (!grads.weights[kDown]) return;
  for (int64_t n = 0; n < rows; ++n) scaled_copy(row_weights[n], h + n * width, h + n * width, width);
  weight_gradient<T>(grads.weights[kDown], dy, hidden, h, width, rows);
}

#define EK_INSTANTIATE(T)                                                                                           \
  template void expert_forward<T>(const ExpertView<T>&, const MatmulTable&, const T*, int64_t,                      \
                                  const SavedActivations<T>&, T*, ExpertWorkspace<T>&);                             \
  template void expert_backward<T>(const ExpertView<T>&, const MatmulTable&, const T*, const T*, const T*, int64_t, \
                                   const SavedActivations<T>&, const ExpertGradients<T>&, ExpertWorkspace<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::nn::kernels
