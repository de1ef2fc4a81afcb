#include "nn/dense/loss.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "nn/dense/linear.h"
#include "nn/kernels/primitives/scratch.h"
#include "nn/kernels/primitives/vector.h"
#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns how many rows of logits are computed at once.
int64_t chunk_rows(int64_t rows, int64_t vocabulary) {
  const int64_t most = std::clamp<int64_t>(kLogitsBytes / 4 / vocabulary, 16, 4096);
  const int64_t chunks = std::max<int64_t>(1, (rows + most - 1) / most);
  return (rows + chunks - 1) / chunks;
}

// Replaces logits by cap tanh(logits / cap), and writes the derivative of each, 1 - tanh^2, to `slopes` if that is not
// null.
template <typename T>
void cap_row(T* row, int64_t vocabulary, T cap, T* slopes) {
  for (int64_t v = 0; v < vocabulary; ++v) {
    const T squashed = std::tanh(row[v] / cap);
    row[v] = cap * squashed;
    if (slopes) slopes[v] = T(1) - squashed * squashed;
  }
}

// Writes the log-probability of one row's target; with `to_gradient`, turns the logits into softmax - onehot.
template <typename T>
T finish_row(T* row, int64_t vocabulary, int64_t target, bool to_gradient) {
  const T top = kernels::max_of(row, vocabulary), at_target = row[target];
  const T sum = kernels::exp_shifted(row, top, vocabulary);
  if (to_gradient) {
    kernels::scaled_copy(T(1) / sum, row, row, vocabulary);
    row[target] -= T(1);
  }
  return at_target - top - std::log(sum);
}

// As finish_row(), of capped logits. `slopes` holds one row.
template <typename T>
T finish_capped_row(T* row, int64_t vocabulary, int64_t target, bool to_gradient, T cap, kernels::Scratch<T>& slopes) {
  T* of_row = to_gradient ? slopes.at_least(vocabulary) : nullptr;
  cap_row(row, vocabulary, cap, of_row);
  const T logprob = finish_row(row, vocabulary, target, to_gradient);
  if (to_gradient) kernels::scaled_product(T(1), row, of_row, row, vocabulary);
  return logprob;
}

template <typename T>
void finish_rows(at::Tensor& logits_NV, const int64_t* targets, T* logprobs, bool to_gradient, double soft_cap) {
  const int64_t vocabulary = logits_NV.size(1);
  T* logits = logits_NV.mutable_data_ptr<T>();
  for_each_range(logits_NV.size(0), kernels::row_grain(vocabulary), [&](int64_t begin, int64_t end) {
    kernels::Scratch<T> slopes;
    for (int64_t n = begin; n < end; ++n) {
      T* row = logits + n * vocabulary;
      logprobs[n] = soft_cap > 0
                        ? finish_capped_row(row, vocabulary, targets[n], to_gradient, static_cast<T>(soft_cap), slopes)
                        : finish_row(row, vocabulary, targets[n], to_gradient);
    }
  });
}

void finish(at::Tensor& logits_NV, const at::Tensor& targets_N, at::Tensor logprobs_N, bool to_gradient,
            double soft_cap) {
  const auto* targets = targets_N.const_data_ptr<int64_t>();
  if (logits_NV.scalar_type() == at::kDouble)
    finish_rows(logits_NV, targets, logprobs_N.mutable_data_ptr<double>(), to_gradient, soft_cap);
  else
    finish_rows(logits_NV, targets, logprobs_N.mutable_data_ptr<float>(), to_gradient, soft_cap);
}

struct Parts {
  at::Tensor logprobs_N, dhidden_ND, dhead_VD;  // gradients of -sum(logprobs); undefined unless asked for
};

// The buffer of the logits. It comes from a workspace pool: faulting in 128 MiB would take as long as the softmax.
struct LogitsWorkspace {
  kernels::Scratch<char> bytes;
};

struct Wanted {
  bool hidden = false, head = false;  // gradients
};

Parts in_chunks(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                const MatmulTable& products, Wanted want, double soft_cap) {
  const int64_t rows = hidden_ND.size(0), step = chunk_rows(rows, head.out());
  Parts parts{.logprobs_N = at::empty({rows}, hidden_ND.options()), .dhidden_ND = {}, .dhead_VD = {}};
  if (want.hidden) parts.dhidden_ND = at::empty_like(hidden_ND);
  if (want.head) parts.dhead_VD = at::zeros(head.values_OI.sizes(), hidden_ND.options());
  const kernels::WorkspaceLease<LogitsWorkspace> workspace(kernels::workspace_pool<LogitsWorkspace>());
  const int64_t bytes = step * head.out() * static_cast<int64_t>(hidden_ND.element_size());
  const auto logits_buffer = at::from_blob(workspace->bytes.at_least(bytes), {step, head.out()}, hidden_ND.options());
  for (int64_t n = 0; n < rows; n += step) {
    const int64_t count = std::min(step, rows - n);
    const auto hidden = hidden_ND.narrow(0, n, count);
    auto logits = logits_buffer.narrow(0, 0, count);
    matmul_nt_out(logits, hidden, head, products);
    finish(logits, targets_N.narrow(0, n, count), parts.logprobs_N.narrow(0, n, count), want.hidden || want.head,
           soft_cap);
    if (want.hidden) parts.dhidden_ND.narrow(0, n, count).copy_(matmul_nn(logits, head, products));
    if (want.head) parts.dhead_VD.addmm_(logits.t(), hidden);
  }
  return parts;
}

struct LossSettings {
  at::Tensor scales_V;
  MatmulTable products;
  Wanted want;
  std::vector<int64_t> counts;  // of targets, for each sum
  double soft_cap = 0;
};

at::Tensor sums_of(const at::Tensor& logprobs_N, const std::vector<int64_t>& counts) {
  std::vector<at::Tensor> sums;
  for (const auto& part : logprobs_N.to(at::kDouble).split_with_sizes(counts)) sums.push_back(-part.sum());
  return at::stack(sums).to(logprobs_N.scalar_type());
}

struct CrossEntropyNode : torch::autograd::Function<CrossEntropyNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden_ND, const at::Tensor& head_VD,
                            const at::Tensor& targets_N, const LossSettings& settings) {
    const Parts parts = in_chunks(hidden_ND, {head_VD, settings.scales_V}, targets_N, settings.products, settings.want,
                                  settings.soft_cap);
    ctx->save_for_backward({parts.dhidden_ND, parts.dhead_VD});
    ctx->saved_data["head_dtype"] = static_cast<int64_t>(head_VD.scalar_type());
    ctx->saved_data["counts"] = settings.counts;
    return sums_of(parts.logprobs_N, settings.counts);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    at::Tensor dhidden_ND, dhead_VD;
    if (saved[0].defined()) {
      const auto counts = at::tensor(ctx->saved_data["counts"].toIntVector(), at::kLong);
      dhidden_ND = saved[0] * at::repeat_interleave(grads[0], counts).unsqueeze(1);
    }
    if (saved[1].defined())
      dhead_VD = (saved[1] * grads[0]).to(static_cast<at::ScalarType>(ctx->saved_data["head_dtype"].toInt()));
    return {dhidden_ND, dhead_VD, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void check_targets(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N) {
  EK_CHECK(hidden_ND.dim() == 2 && head_VD.dim() == 2 && hidden_ND.size(1) == head_VD.size(1) && targets_N.dim() == 1 &&
               targets_N.size(0) == hidden_ND.size(0) && targets_N.scalar_type() == at::kLong,
           kShape, "cross_entropy: hidden has sizes ", hidden_ND.sizes(), ", head ", head_VD.sizes(), ", targets ",
           targets_N.sizes(), " of ", c10::toString(targets_N.scalar_type()));
  if (targets_N.numel() == 0 || !targets_N.is_cpu()) return;
  const auto targets = targets_N.contiguous();
  const auto* first = targets.const_data_ptr<int64_t>();
  const auto [least, most] = std::minmax_element(first, first + targets.numel());
  EK_CHECK(*least >= 0 && *most < head_VD.size(0), kShape, "cross_entropy: targets run from ", *least, " to ", *most,
           ", the vocabulary has ", head_VD.size(0), " entries");
}

bool trains_head(const FrozenWeight& head, std::span<const int64_t> counts) {
  const bool trained = c10::GradMode::is_enabled() && head.values_OI.requires_grad();
  EK_CHECK(!trained || counts.size() == 1, kInternal, "cross_entropies: one gradient of the head for ", counts.size(),
           " sums");
  return trained;
}

std::vector<LossSum> loss_sums(const at::Tensor& sums_P, std::span<const int64_t> counts) {
  std::vector<LossSum> losses;
  for (const auto& sum : sums_P.unbind()) losses.push_back({sum, counts[losses.size()]});
  return losses;
}

at::Tensor soft_capped(const at::Tensor& logits, double soft_cap) {
  return soft_cap > 0 ? at::tanh(logits / soft_cap) * soft_cap : logits;
}

LossSum cross_entropy(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                      const MatmulTable& products, double soft_cap) {
  return cross_entropies(hidden_ND, head, targets_N, {{targets_N.size(0)}}, products, soft_cap).front();
}

std::vector<LossSum> cross_entropies(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                                     std::span<const int64_t> counts, const MatmulTable& products, double soft_cap) {
  const auto& head_VD = head.values_OI;
  check_targets(hidden_ND, head_VD, targets_N);
  const Wanted want{c10::GradMode::is_enabled() && hidden_ND.requires_grad(), trains_head(head, counts)};
  const auto sums_P =
      CrossEntropyNode::apply(hidden_ND.contiguous(), head_VD, targets_N.contiguous(),
                              LossSettings{head.scales_O, products, want, {counts.begin(), counts.end()}, soft_cap});
  return loss_sums(sums_P, counts);
}

at::Tensor logits(const at::Tensor& hidden_ND, const FrozenWeight& head, const MatmulTable& products, double soft_cap) {
  return soft_capped(linear(hidden_ND, head, {}, products), soft_cap);
}

at::Tensor target_logprobs(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                           const MatmulTable& products, double soft_cap) {
  check_targets(hidden_ND, head.values_OI, targets_N);
  const c10::NoGradGuard no_grad;
  const FrozenWeight frozen(head.values_OI.detach(), head.scales_O);
  return in_chunks(hidden_ND.detach().contiguous(), frozen, targets_N.contiguous(), products, {}, soft_cap).logprobs_N;
}

}  // namespace evenkeel::nn
