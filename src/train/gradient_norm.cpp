#include "train/gradient_norm.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "base/system/parallel.h"

namespace evenkeel::train {
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

void clip_gradient_norm(const std::vector<at::Tensor>& parameters, double max_norm, nn::EngineKind engine) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  if (gradients.empty()) return;
  if (engine == nn::EngineKind::kAten) {
    const auto norm = at::stack(at::_foreach_norm(gradients)).norm();
    return at::_foreach_mul_(gradients, at::reciprocal(norm + kSmallest).mul_(max_norm).clamp_max_(1.0));
  }
  const double factor = max_norm / (norm_of(gradients) + kSmallest);
  if (!(factor >= 1)) at::_foreach_mul_(gradients, factor);
}

}  // namespace evenkeel::train
