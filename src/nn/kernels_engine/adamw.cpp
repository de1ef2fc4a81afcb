#include "nn/kernels_engine/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/system/parallel.h"
#include "nn/kernels_engine/adamw_kernel.h"

namespace evenkeel::nn {
namespace {

constexpr int64_t kPiece = int64_t{1} << 15;  // numbers per task of a thread

template <typename T>
AdamWSpan<T> part_of(const std::array<at::Tensor, 4>& tensors, int64_t begin, int64_t end) {
  const auto at = [&](size_t i) { return tensors[i].mutable_data_ptr<T>() + begin; };
  return {at(0), at(1), at(2), at(3), end - begin};
}

/// A tensor or a slice of one, with the factors of its step.
struct Work {
  std::array<at::Tensor, 4> tensors;  // parameter, gradient, moments
  AdamWFactors factors{};

  void run(int64_t begin, int64_t end) const {
    if (tensors[0].scalar_type() == at::kDouble)
      adamw(part_of<double>(tensors, begin, end), factors);
    else
      adamw(part_of<float>(tensors, begin, end), factors);
  }
};

/// \param slice  index in a stacked parameter; -1: the whole parameter
Work work_on(AdamWState& state, size_t parameter, int64_t slice, const AdamWStep& of) {
  Work work{.tensors = {state.parameters[parameter].detach(), contiguous_gradient(state.parameters[parameter]),
                        state.exp_avgs[parameter], state.exp_avg_sqs[parameter]}};
  auto step = state.steps[parameter];
  if (slice >= 0) {
    for (auto& tensor : work.tensors) tensor = tensor[slice];
    step = step[slice];
  }
  const double count = step.add_(1).item<double>();
  work.factors = {.beta1 = of.betas[0],
                  .beta2 = of.betas[1],
                  .eps = of.eps,
                  .decay = 1 - of.lr * of.weight_decay,
                  .lr = of.lr / (1 - std::pow(of.betas[0], count)),
                  .root_correction = std::sqrt(1 - std::pow(of.betas[1], count)),
                  .zero_gradient = of.zero_gradients};
  return work;
}

/// Splits all tensors into pieces of equal length. Each thread takes the next piece when it is free.
void run_all(const std::vector<Work>& work) {
  struct Piece {
    const Work* work;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (const auto& one : work)
    for (int64_t begin = 0, n = one.tensors[0].numel(); begin < n; begin += kPiece)
      pieces.push_back({&one, begin, std::min(n, begin + kPiece)});
  for_each_piece(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const auto& piece = pieces[static_cast<size_t>(i)];
    piece.work->run(piece.begin, piece.end);
  });
}

}  // namespace

void kernels_adamw(AdamWState& state, const AdamWStep& step) {
  std::vector<Work> work;
  for (size_t p = 0; p < state.parameters.size(); ++p) {
    auto& parameter = state.parameters[p];
    if (!parameter.grad().defined()) continue;
    const auto active_E = active_slices(state, step, p);
    if (state.steps[p].dim() == 0) {
      work.push_back(work_on(state, p, -1, step));
      continue;
    }
    for (int64_t i = 0; i < parameter.size(0); ++i) {
      if (!active_E.defined() || active_E[i].item<bool>())
        work.push_back(work_on(state, p, i, step));
      else if (step.zero_gradients)
        parameter.mutable_grad()[i].zero_();
    }
  }
  run_all(work);
}

}  // namespace evenkeel::nn
