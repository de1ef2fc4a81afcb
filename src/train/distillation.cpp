#include "train/distillation.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace evenkeel::train {
namespace {

constexpr int64_t kMostLogits = int64_t{1} << 24;  // values of one chunk

int64_t powers_below(int64_t top_k) {
  int64_t count = 0;
  while ((int64_t{1} << count) < top_k) ++count;
  return count;
}

}  // namespace

SmallerTopK::SmallerTopK(int64_t top_k, const methods::ClientView& view)
    : count_(powers_below(top_k)),
      stream_(view.seed, "k_dropout", static_cast<uint64_t>(view.round), static_cast<uint64_t>(view.client.id)) {}

int64_t SmallerTopK::draw() {
  if (count_ == 0) return 0;
  return int64_t{1} << stream_.below(static_cast<uint64_t>(count_));
}

at::Tensor backward_of_divergence(const models::CausalLm& model, const models::ForwardOptions& options,
                                  const DistillationRows& rows, double temperature) {
  const auto logprobs = [&](const at::Tensor& hidden) {
    return (model.logits(hidden, options) / temperature).log_softmax(-1);
  };
  const auto student = rows.student_ND.detach().requires_grad_(true);
  const int64_t step = std::max<int64_t>(1, kMostLogits / model.spec().vocab_size);
  auto total = at::zeros({}, student.options().requires_grad(false));
  for (int64_t n = 0; n < student.size(0); n += step) {
    const int64_t count = std::min(step, student.size(0) - n);
    const auto p = logprobs(rows.teacher_ND.narrow(0, n, count)), q = logprobs(student.narrow(0, n, count));
    const auto divergence_N = temperature * temperature * (p.exp() * (p - q)).sum(-1);
    (divergence_N * rows.weights_N.narrow(0, n, count)).sum().backward();
    total += divergence_N.detach().sum();
  }
  rows.student_ND.backward(student.grad());
  return total;
}

}  // namespace evenkeel::train
