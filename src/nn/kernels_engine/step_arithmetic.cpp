#include "nn/kernels_engine/step_arithmetic.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/system/parallel.h"
#include "nn/kernels_engine/adamw.h"
#include "nn/moe/expert_tensors.h"

namespace evenkeel::nn {
namespace {

constexpr int64_t kSumPiece = int64_t{1} << 15;  // numbers per task of a thread
constexpr double kSmallest = 1e-6;               // added to the norm, as in torch

template <typename T>
double sum_of_squares(const T* begin, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(begin[i]) * static_cast<double>(begin[i]);
  return sum;
}

double sum_of_squares(const at::Tensor& flat, int64_t begin) {
  const int64_t n = std::min(kSumPiece, flat.numel() - begin);
  return flat.scalar_type() == at::kDouble ? sum_of_squares(flat.const_data_ptr<double>() + begin, n)
                                           : sum_of_squares(flat.const_data_ptr<float>() + begin, n);
}

double norm_of(const std::vector<at::Tensor>& gradients) {
  struct Piece {
    at::Tensor flat;
    int64_t begin;
    double sum;
  };
  std::vector<Piece> pieces;
  for (const auto& gradient : gradients) {
    const auto flat = gradient.contiguous().view(-1);
    for (int64_t begin = 0; begin < flat.numel(); begin += kSumPiece) pieces.push_back({flat, begin, 0});
  }
  for_each_piece(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    auto& piece = pieces[static_cast<size_t>(i)];
    piece.sum = sum_of_squares(piece.flat, piece.begin);
  });
  double sum = 0;
  for (const auto& piece : pieces) sum += piece.sum;
  return std::sqrt(sum);
}

}  // namespace

at::Tensor KernelsStepArithmetic::expert_norms(std::span<const at::Tensor> tensors) const {
  return nn::expert_norms(tensors);
}

at::Tensor KernelsStepArithmetic::add_terms(std::span<const ExpertTerms> layers, const TermScales& scales,
                                            const at::Tensor& /*norm_LE*/, double factor) const {
  std::vector<at::Tensor> norms;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto l = static_cast<int64_t>(i);
    norms.push_back(add_expert_terms(layers[i].targets, layers[i].terms,
                                     {scales.share_LE[l], scales.scale_LE[l], scales.bound}, factor));
  }
  return at::stack(norms);
}

at::Tensor KernelsStepArithmetic::limit_norm(std::vector<at::Tensor> gradients, double limit) const {
  double squares = 0;
  for (const auto& gradient : gradients) squares += gradient.square().sum(at::kDouble).item<double>();
  const bool above = squares > limit * limit;
  for (auto& gradient : gradients)
    if (above) gradient.mul_(limit / std::sqrt(squares));
  return at::scalar_tensor(above ? 1.0 : 0.0, at::kDouble);
}

void KernelsStepArithmetic::clip_norm(std::vector<at::Tensor> gradients, double max_norm) const {
  const double factor = max_norm / (norm_of(gradients) + kSmallest);
  if (!(factor >= 1)) at::_foreach_mul_(gradients, factor);
}

void KernelsStepArithmetic::adamw(AdamWState& state, const AdamWStep& step) const { kernels_adamw(state, step); }

}  // namespace evenkeel::nn
