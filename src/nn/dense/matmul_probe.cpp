#include "nn/dense/matmul_probe.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/plain/clock.h"
#include "base/system/dispatch.h"
#include "nn/dense/frozen_weight.h"
#include "nn/kernels/matmul/matmul.h"

namespace evenkeel::nn {
namespace {

using kernels::MatmulScratch;
using kernels::StoredMatrix;

constexpr int kRepeats = 5;

// Returns 64 MiB of weights, more than the caches hold.
std::vector<FrozenWeight> cold_weights(GemmContext context, at::ScalarType stored) {
  const int64_t out = context == GemmContext::kExpert ? 1024 : 2048;
  const int64_t bytes = out * 2048 * static_cast<int64_t>(c10::elementSize(stored));
  std::vector<FrozenWeight> weights;
  for (int64_t i = 0; i < (int64_t{1} << 26) / bytes; ++i) {
    if (stored == at::kChar)
      weights.emplace_back(at::ones({out, 2048}, at::kChar), at::full({out}, 0.01, at::kFloat));
    else
      weights.emplace_back(at::full({out, 2048}, 0.01, stored));
  }
  return weights;
}

kernels::StoredMatrix stored(const FrozenWeight& weight) {
  return kernels::StoredMatrix::of(weight.values_OI, weight.scales_O);
}

struct ProbeOperands {
  at::Tensor x, y;
  kernels::MatmulScratch<float> scratch;
};

struct ProbeCell {
  GemmContext context;
  Direction direction;
  int64_t rows;
  MatmulKernel kernel;
};

void multiply(const ProbeCell& cell, const FrozenWeight& weight, ProbeOperands& with) {
  const auto w = stored(weight);
  const bool forward = cell.direction == Direction::kForward;
  const kernels::Activations x{with.x.const_data_ptr<float>(), cell.rows, forward ? w.in : w.out};
  const kernels::Result y{with.y.mutable_data_ptr<float>(), forward ? w.out : w.in};
  if (forward)
    kernels::matmul_nt<float>(cell.kernel, x, w, y, with.scratch);
  else
    kernels::matmul_nn<float>(cell.kernel, x, {w, y}, with.scratch);
}

// Returns the seconds for one product with each weight. Experts run in parallel, linear layers one after the other.
double seconds(const ProbeCell& cell, std::span<const FrozenWeight> weights, std::vector<ProbeOperands>& operands) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<size_t> next{0};
  const auto work = [&](int64_t thread, int64_t) {
    for (size_t i = next++; i < weights.size(); i = next++)
      multiply(cell, weights[i], operands[static_cast<size_t>(thread)]);
  };
  if (cell.context == GemmContext::kExpert)
    at::parallel_for(0, static_cast<int64_t>(operands.size()), 1, work);
  else
    work(0, 1);
  return seconds_since(start);
}

// Returns how many weights make about 1 GFLOP; at least one per thread.
size_t weights_for(int64_t rows, int64_t numbers, size_t threads, size_t most) {
  const auto some = static_cast<size_t>((int64_t{1} << 29) / (rows * numbers));
  return std::clamp<size_t>(some, std::min(threads, most), most);
}

double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

// A kernel, the estimated seconds for all weights, and the measured ones.
struct Candidate {
  ProbeCell cell;
  double trial = 0;
  std::vector<double> times{};
};

std::vector<Candidate> candidates(const ProbeCell& cell, std::span<const FrozenWeight> weights,
                                  std::vector<ProbeOperands>& operands) {
  const auto some = weights.first(std::max(std::min(operands.size(), weights.size()), weights.size() / 4));
  const double share = static_cast<double>(some.size()) / static_cast<double>(weights.size());
  std::vector<Candidate> all;
  for (const auto kernel : {MatmulKernel::kFp32Exact, MatmulKernel::kBf16Dot, MatmulKernel::kBf16Tile,
                            MatmulKernel::kBf16Vendor, MatmulKernel::kUpcast}) {
    if (kernel == MatmulKernel::kBf16Dot && !has_bfloat16_dots()) continue;
    if (kernel == MatmulKernel::kBf16Tile && !has_bfloat16_tiles()) continue;
    if (kernels::supported_kernel(stored(weights[0]), kernel) != kernel) continue;
    auto& one = all.emplace_back(Candidate{{cell.context, cell.direction, cell.rows, kernel}});
    seconds(one.cell, weights.first(1), operands);  // the library compiles its kernel at the first product of a shape
    one.trial = seconds(one.cell, some, operands) / share;
  }
  return all;
}

// Measures all kernels of a cell in turns, so that a temporary disturbance affects all of them. A kernel that takes
// more than twice the best time in the trial is not measured again.
MeasuredMatmul measure(const ProbeCell& cell, std::span<const FrozenWeight> weights,
                       std::vector<ProbeOperands>& operands) {
  const int64_t numbers = weights[0].values_OI.numel();
  const auto used = weights.first(weights_for(cell.rows, numbers, operands.size(), weights.size()));
  auto all = candidates(cell, used, operands);
  const double best =
      std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.trial < b.trial; })->trial;
  for (int i = 0; i < kRepeats; ++i)
    for (auto& one : all)
      if (one.trial <= 2 * best) one.times.push_back(seconds(one.cell, used, operands));
  const double work = 2e-9 * static_cast<double>(cell.rows * numbers) * static_cast<double>(used.size());
  MeasuredMatmul result{.context = cell.context, .direction = cell.direction, .rows = cell.rows};
  for (const auto& one : all)
    result.gflops[static_cast<size_t>(one.cell.kernel)] = work / (one.times.empty() ? one.trial : median(one.times));
  return result;
}

}  // namespace

MatmulKernel MeasuredMatmul::chosen() const {
  auto best = MatmulKernel::kFp32Exact;
  const auto speed = [&](MatmulKernel kernel) { return gflops[static_cast<size_t>(kernel)]; };
  for (const auto kernel :
       {MatmulKernel::kBf16Dot, MatmulKernel::kBf16Tile, MatmulKernel::kBf16Vendor, MatmulKernel::kUpcast})
    if (speed(kernel) > 1.1 * speed(best)) best = kernel;
  return best;
}

std::vector<MeasuredMatmul> measure_matmuls(at::ScalarType stored) {
  const c10::NoGradGuard no_grad;
  constexpr int64_t kMostRows = MatmulTable::kRows.back(), kWidest = 2048;
  std::vector<MeasuredMatmul> all;
  for (const auto context : {GemmContext::kExpert, GemmContext::kLinear}) {
    const auto weights = cold_weights(context, stored);
    const int threads = context == GemmContext::kExpert ? at::get_num_threads() : 1;
    std::vector<ProbeOperands> operands(static_cast<size_t>(threads));
    for (auto& one : operands) {
      one.x = at::full({kMostRows, kWidest}, 0.5, at::kFloat);
      one.y = at::zeros({kMostRows, kWidest}, at::kFloat);
    }
    for (const auto direction : {Direction::kForward, Direction::kBackward})
      for (const int64_t rows : MatmulTable::typical_rows())
        all.push_back(measure({context, direction, rows, MatmulKernel::kFp32Exact}, weights, operands));
  }
  return all;
}

MatmulTable fastest_kernels(const std::vector<MeasuredMatmul>& measured) {
  MatmulTable table;
  for (const auto& cell : measured) table.set(cell.context, cell.direction, cell.rows, cell.chosen());
  return table;
}

}  // namespace evenkeel::nn
