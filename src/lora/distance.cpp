#include "lora/distance.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/plain/error.h"
#include "base/system/dispatch.h"
#include "base/system/parallel.h"

namespace evenkeel::lora {
namespace {

constexpr int64_t kDistanceBlock = int64_t{1} << 14;  // values that one thread sums in order

/// Adds up squared differences of one block in `kLanes` sums, so that the loop can be vectorised.
template <typename T>
struct SquaredDifferences {
  static EK_INLINE double run(const T* x, const T* y, int64_t count) {
    constexpr int64_t kLanes = 8;
    double lanes[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const double moved = static_cast<double>(x[i + lane]) - static_cast<double>(y ? y[i + lane] : T(0));
        lanes[lane] += moved * moved;
      }
    for (; i < count; ++i) {
      const double moved = static_cast<double>(x[i]) - static_cast<double>(y ? y[i] : T(0));
      lanes[0] += moved * moved;
    }
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  }
};

template <typename T>
double sum_blocks(const at::Tensor& x, const at::Tensor& y) {
  const auto type = c10::CppTypeToScalarType<T>::value;
  const at::Tensor left = x.to(type).contiguous(), right = y.defined() ? y.to(type).contiguous() : y;
  const auto* from = left.template const_data_ptr<T>();
  const auto* to = right.defined() ? right.template const_data_ptr<T>() : nullptr;
  const int64_t count = left.numel();
  std::vector<double> sums(static_cast<size_t>((count + kDistanceBlock - 1) / kDistanceBlock));
  for_each_piece(static_cast<int64_t>(sums.size()), [&](int64_t block) {
    const int64_t begin = block * kDistanceBlock, size = std::min(kDistanceBlock, count - begin);
    sums[static_cast<size_t>(block)] = vectorised<SquaredDifferences<T>>(from + begin, to ? to + begin : nullptr, size);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

at::Tensor comparable(const at::Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).contiguous();
}

double squared_distance(const at::Tensor& x, const at::Tensor& y) {
  EK_CHECK(!y.defined() || x.sizes() == y.sizes(), kShape, "a distance between ", x.sizes(), " and ", y.sizes());
  const bool wide = x.scalar_type() == at::kDouble || (y.defined() && y.scalar_type() == at::kDouble);
  return wide ? sum_blocks<double>(x, y) : sum_blocks<float>(x, y);
}

}  // namespace evenkeel::lora
