#include "nn/moe/routing.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kTokensPerTask = 64;

struct Plan {
  int64_t top_k = 0;
  int64_t num_candidates = 0;  // 0: no modulation
  ModulationMode mode = ModulationMode::kCandidate;
  bool over_selected = false;  // gate weights are a softmax over the selected experts, else over all
  bool raw_gates = false;      // gate weights follow s instead of m
};

// Appends the `count` largest of values[0, n) that are not `taken` to `chosen`, largest first. Ties go to the lowest
// index. A NaN never displaces another value.
template <typename T>
void append_largest(const T* values, int64_t n, int64_t count, const std::vector<char>* excluded,
                    std::vector<int64_t>& chosen) {
  if (count == 0) return;
  const auto first = static_cast<int64_t>(chosen.size());
  for (int64_t e = 0; e < n; ++e) {
    if (excluded && (*excluded)[static_cast<size_t>(e)]) continue;
    auto size = static_cast<int64_t>(chosen.size());
    if (size - first == count && !(values[e] > values[chosen.back()])) continue;
    if (size - first == count) --size;
    chosen.resize(static_cast<size_t>(size + 1));
    int64_t position = size;
    for (; position > first && values[e] > values[chosen[static_cast<size_t>(position - 1)]]; --position)
      chosen[static_cast<size_t>(position)] = chosen[static_cast<size_t>(position - 1)];
    chosen[static_cast<size_t>(position)] = e;
  }
}

// Selects the experts of one token.
template <typename T>
struct TokenRouter {
  const Plan& plan;
  int64_t num_experts;
  const T* phi;
  std::vector<int64_t> candidates, chosen;
  std::vector<char> preferred;

  TokenRouter(const Plan& p, int64_t experts, const T* modulation)
      : plan(p), num_experts(experts), phi(modulation), preferred(static_cast<size_t>(experts), 0) {}

  // Computes m and the selection. added[e] is 1 if m[e] = s[e] + phi[e].
  void run(const T* s, T* m, char* added) {
    chosen.clear();
    std::copy(s, s + num_experts, m);
    std::fill(added, added + num_experts, char{0});
    if (!phi) return append_largest<T>(m, num_experts, plan.top_k, nullptr, chosen);
    candidates.clear();
    append_largest<T>(s, num_experts, plan.num_candidates, nullptr, candidates);
    plan.mode == ModulationMode::kCandidate ? modulate_candidates(m, added) : modulate_others(m, added);
  }

  void modulate_candidates(T* m, char* added) {
    for (const int64_t e : candidates) add(m, added, e);
    append_largest<T>(m, num_experts, plan.top_k, nullptr, chosen);
  }

  void modulate_others(T* m, char* added) {
    std::fill(preferred.begin(), preferred.end(), char{0});
    for (const int64_t e : candidates) preferred[static_cast<size_t>(e)] = 1;
    for (int64_t e = 0; e < num_experts; ++e)
      if (!preferred[static_cast<size_t>(e)]) add(m, added, e);
    const auto kept = std::min<int64_t>(plan.top_k, static_cast<int64_t>(candidates.size()));
    chosen.assign(candidates.begin(), candidates.begin() + kept);
    append_largest<T>(m, num_experts, plan.top_k - kept, &preferred, chosen);
  }

  void add(T* m, char* added, int64_t e) const {
    m[e] += phi[e];
    added[e] = 1;
  }
};

// Computes the gate weights from the scores m.
// \param probs  [E]; the softmax over all experts if `over_selected` is false
template <typename T>
void gate(const Plan& plan, const T* m, const int64_t* chosen, int64_t num_experts, T* probs, T* gate_K) {
  const int64_t k = plan.top_k;
  if (plan.over_selected) {
    for (int64_t i = 0; i < k; ++i) gate_K[i] = m[chosen[i]];
    const T sum = kernels::exp_shifted(gate_K, kernels::max_of(gate_K, k), k);
    for (int64_t i = 0; i < k; ++i) gate_K[i] /= sum;
    return;
  }
  std::copy(m, m + num_experts, probs);
  const T sum = kernels::exp_shifted(probs, kernels::max_of(probs, num_experts), num_experts);
  for (int64_t e = 0; e < num_experts; ++e) probs[e] /= sum;
  for (int64_t i = 0; i < k; ++i) gate_K[i] = probs[chosen[i]];
}

struct Routed {
  at::Tensor weights_TK, experts_TK, probs_TE, added_TE;
};

template <typename T>
Routed route_tokens(const at::Tensor& logits_TE, const at::Tensor& phi_E, const Plan& plan) {
  const int64_t tokens = logits_TE.size(0), experts = logits_TE.size(1), k = plan.top_k;
  Routed out{at::empty({tokens, k}, logits_TE.options()), at::empty({tokens, k}, logits_TE.options().dtype(at::kLong)),
             at::empty({plan.over_selected ? 0 : tokens, experts}, logits_TE.options()),
             at::empty({phi_E.numel() > 0 ? tokens : 0, experts}, logits_TE.options().dtype(at::kChar))};
  const T *s = logits_TE.const_data_ptr<T>(), *phi = phi_E.numel() > 0 ? phi_E.const_data_ptr<T>() : nullptr;
  T *weights = out.weights_TK.mutable_data_ptr<T>(), *probs = out.probs_TE.mutable_data_ptr<T>();
  auto* chosen = out.experts_TK.mutable_data_ptr<int64_t>();
  auto* added = reinterpret_cast<char*>(out.added_TE.mutable_data_ptr<int8_t>());
  for_each_range(tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
    TokenRouter<T> router(plan, experts, phi);
    std::vector<T> m(static_cast<size_t>(experts));
    std::vector<char> unused(static_cast<size_t>(experts));
    for (int64_t t = begin; t < end; ++t) {
      router.run(s + t * experts, m.data(), phi ? added + t * experts : unused.data());
      std::copy(router.chosen.begin(), router.chosen.end(), chosen + t * k);
      const T* scores = plan.raw_gates ? s + t * experts : m.data();
      gate(plan, scores, chosen + t * k, experts, probs + (plan.over_selected ? 0 : t * experts), weights + t * k);
    }
  });
  if (plan.raw_gates) out.added_TE.zero_();  // no gate depends on phi
  return out;
}

// Computes dm = J^T dgate: over the selected, gamma_i (d_i - sum_j d_j gamma_j); over all, the same with gamma =
// softmax(m) and d = 0 for the experts not selected.
template <typename T>
at::Tensor gate_backward(const at::Tensor& grad_TK, const Routed& routed) {
  const bool over_selected = routed.probs_TE.size(0) == 0;
  const int64_t tokens = grad_TK.size(0), k = grad_TK.size(1), experts = routed.probs_TE.size(1);
  auto dm_TE = at::zeros({tokens, experts}, grad_TK.options());
  const T *grad = grad_TK.const_data_ptr<T>(), *weights = routed.weights_TK.const_data_ptr<T>();
  const T* probs = routed.probs_TE.const_data_ptr<T>();
  const auto* chosen = routed.experts_TK.const_data_ptr<int64_t>();
  T* dm = dm_TE.mutable_data_ptr<T>();
  for_each_range(tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T *g = grad + t * k, *w = weights + t * k;
      const T mean = kernels::dot(g, w, k);
      T* out = dm + t * experts;
      if (!over_selected) kernels::axpy(-mean, probs + t * experts, out, experts);
      for (int64_t i = 0; i < k; ++i) out[chosen[t * k + i]] += w[i] * (over_selected ? g[i] - mean : g[i]);
    }
  });
  return dm_TE;
}

struct GateNode : torch::autograd::Function<GateNode> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits_TE, const at::Tensor& phi_E,
                               const Plan& plan) {
    const Routed routed = logits_TE.scalar_type() == at::kDouble ? route_tokens<double>(logits_TE, phi_E, plan)
                                                                 : route_tokens<float>(logits_TE, phi_E, plan);
    ctx->save_for_backward({routed.weights_TK, routed.experts_TK, routed.probs_TE, routed.added_TE});
    ctx->mark_non_differentiable({routed.experts_TK});
    ctx->set_materialize_grads(false);
    return {routed.weights_TK, routed.experts_TK};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const auto saved = ctx->get_saved_variables();
    const Routed routed{saved[0], saved[1], saved[2], saved[3]};
    const auto grad_TK = grads[0].contiguous();
    const auto dm_TE = grad_TK.scalar_type() == at::kDouble ? gate_backward<double>(grad_TK, routed)
                                                            : gate_backward<float>(grad_TK, routed);
    at::Tensor dphi_E;
    if (ctx->needs_input_grad(1)) dphi_E = (dm_TE * routed.added_TE).sum(0);
    return {dm_TE, dphi_E, at::Tensor()};
  }
};

}  // namespace

void check_router(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E) {
  EK_CHECK(logits_TE.dim() == 2, kShape, "route: logits have sizes ", logits_TE.sizes(),
           ", expected [tokens, experts]");
  const int64_t experts = logits_TE.size(1);
  EK_CHECK(options.top_k >= 1 && options.top_k <= experts, kConfig, "top_k is ", options.top_k, ", allowed: 1 to ",
           experts, ", the experts of the model");
  EK_CHECK(options.num_candidates >= 0 && options.num_candidates <= experts, kConfig, "num_candidates is ",
           options.num_candidates, ", allowed: 0 to ", experts, ", the experts of the model");
  EK_CHECK(!phi_E.defined() || (phi_E.dim() == 1 && phi_E.size(0) == experts), kShape, "route: phi has sizes ",
           phi_E.defined() ? phi_E.sizes() : at::IntArrayRef(), ", expected [", experts, "]");
}

bool modulates(const RouterOptions& options, const at::Tensor& phi_E) {
  return options.num_candidates > 0 && phi_E.defined();
}

at::Tensor with_output_scale(const at::Tensor& weights_TK, const RouterOptions& options) {
  return options.output_scale.defined() ? weights_TK * options.output_scale : weights_TK;
}

Routing route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E, bool norm_topk_prob) {
  check_router(logits_TE, options, phi_E);
  const bool modulated = modulates(options, phi_E);
  const Plan plan{options.top_k, modulated ? options.num_candidates : 0, options.mode,
                  renormalises(options.gate_norm, norm_topk_prob), options.raw_gates};
  // Autograd accepts no undefined tensors: an empty phi means no modulation.
  const auto phi = modulated ? phi_E.to(logits_TE.scalar_type()).contiguous() : at::empty({0}, logits_TE.options());
  const auto outputs = GateNode::apply(logits_TE.contiguous(), phi, plan);
  return {outputs[1], with_output_scale(outputs[0], options)};
}

}  // namespace evenkeel::nn
