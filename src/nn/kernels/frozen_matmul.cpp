#include "nn/kernels/frozen_matmul.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>

#include "nn/kernels/vector.h"

namespace evenkeel {
namespace {

constexpr int64_t kPanelRows = 512;
// Below this the conversions cost more than the narrow product saves, and routers keep their exact scores.
constexpr int64_t kSmallestNativeWeight = int64_t{1} << 18;

at::Tensor widened(const at::Tensor& w_OI, at::ScalarType dtype) {
  auto wide = at::empty(w_OI.sizes(), w_OI.options().dtype(dtype));
  const auto* source = static_cast<const char*>(w_OI.const_data_ptr());
  const int64_t width = w_OI.size(1), size = static_cast<int64_t>(w_OI.element_size());
  at::parallel_for(0, w_OI.size(0), std::max<int64_t>(1, 65536 / std::max<int64_t>(width, 1)),
                   [&](int64_t begin, int64_t end) {
                     const void* rows = source + begin * width * size;
                     if (dtype == at::kDouble)
                       kernels::widen(rows, w_OI.scalar_type(), wide.mutable_data_ptr<double>() + begin * width,
                                      (end - begin) * width);
                     else
                       kernels::widen(rows, w_OI.scalar_type(), wide.mutable_data_ptr<float>() + begin * width,
                                      (end - begin) * width);
                   });
  return wide;
}

bool fits_one_panel(const at::Tensor& w_OI) { return w_OI.numel() <= kPanelRows * 4096; }

void widened_forward(at::Tensor& out_TO, const at::Tensor& x_TI, const at::Tensor& w_OI) {
  if (fits_one_panel(w_OI)) {
    at::mm_out(out_TO, x_TI, widened(w_OI, x_TI.scalar_type()).t());
    return;
  }
  for (int64_t o = 0; o < w_OI.size(0); o += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, w_OI.size(0) - o);
    auto out = out_TO.narrow(1, o, rows);
    at::mm_out(out, x_TI, widened(w_OI.narrow(0, o, rows), x_TI.scalar_type()).t());
  }
}

at::Tensor widened_backward(const at::Tensor& dy_TO, const at::Tensor& w_OI) {
  if (fits_one_panel(w_OI)) return at::mm(dy_TO, widened(w_OI, dy_TO.scalar_type()));
  auto dx_TI = at::zeros({dy_TO.size(0), w_OI.size(1)}, dy_TO.options());
  for (int64_t o = 0; o < w_OI.size(0); o += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, w_OI.size(0) - o);
    dx_TI.addmm_(dy_TO.narrow(1, o, rows), widened(w_OI.narrow(0, o, rows), dy_TO.scalar_type()));
  }
  return dx_TI;
}

double gflops(int64_t rows, const std::vector<at::Tensor>& weights, bool forward, MatmulPath path) {
  auto x = at::full({rows, weights[0].size(forward ? 1 : 0)}, 0.5, at::kFloat);
  const auto pass = [&] {
    for (const auto& w : weights)
      forward ? kernels::frozen_matmul(x, w, path) : kernels::frozen_matmul_backward(x, w, path);
  };
  pass();
  const auto start = std::chrono::steady_clock::now();
  pass();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return 2e-9 * static_cast<double>(rows * weights[0].numel()) * static_cast<double>(weights.size()) / seconds;
}

}  // namespace

std::vector<ProbeRow> measure_matmul_paths() {
  c10::NoGradGuard no_grad;
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 16; ++i) weights.push_back(at::full({1024, 2048}, 0.01, at::kBFloat16));
  std::vector<ProbeRow> table;
  for (const int64_t rows : {1, 8, 32, 128, 512}) {
    const auto measured = [&](bool forward, MatmulPath path) { return gflops(rows, weights, forward, path); };
    table.push_back({.rows = rows,
                     .widen_forward = measured(true, MatmulPath::kWiden),
                     .widen_backward = measured(false, MatmulPath::kWiden),
                     .native_forward = measured(true, MatmulPath::kNative),
                     .native_backward = measured(false, MatmulPath::kNative)});
  }
  return table;
}

MatmulPath probe_matmul_path() {
  double widen_seconds = 0, native_seconds = 0;
  for (const auto& row : measure_matmul_paths()) {
    const auto work = static_cast<double>(row.rows);
    widen_seconds += work * (1 / row.widen_forward + 1 / row.widen_backward);
    native_seconds += work * (1 / row.native_forward + 1 / row.native_backward);
  }
  return native_seconds < widen_seconds ? MatmulPath::kNative : MatmulPath::kWiden;
}

namespace kernels {

bool takes_native_path(const at::Tensor& w_OI, MatmulPath path) {
  return w_OI.scalar_type() == at::kBFloat16 && path == MatmulPath::kNative && w_OI.numel() >= kSmallestNativeWeight;
}

at::ScalarType product_dtype(const at::Tensor& x_TI, const at::Tensor& w_OI, MatmulPath path) {
  return x_TI.scalar_type() == at::kFloat && takes_native_path(w_OI, path) ? at::kBFloat16 : x_TI.scalar_type();
}

void frozen_matmul_out(at::Tensor& out_TO, const at::Tensor& x_TI, const at::Tensor& w_OI) {
  if (x_TI.scalar_type() == w_OI.scalar_type())
    at::mm_out(out_TO, x_TI, w_OI.t());
  else if (out_TO.scalar_type() == at::kBFloat16)
    at::mm_out(out_TO, x_TI.to(at::kBFloat16), w_OI.t());
  else
    widened_forward(out_TO, x_TI, w_OI);
}

at::Tensor frozen_matmul(const at::Tensor& x_TI, const at::Tensor& w_OI, MatmulPath path) {
  auto out_TO = at::empty({x_TI.size(0), w_OI.size(0)}, x_TI.options().dtype(product_dtype(x_TI, w_OI, path)));
  frozen_matmul_out(out_TO, x_TI, w_OI);
  return out_TO.to(x_TI.scalar_type());
}

at::Tensor frozen_matmul_backward(const at::Tensor& dy_TO, const at::Tensor& w_OI, MatmulPath path) {
  if (dy_TO.scalar_type() == w_OI.scalar_type()) return at::mm(dy_TO, w_OI);
  if (product_dtype(dy_TO, w_OI, path) == at::kBFloat16) return at::mm(dy_TO.to(at::kBFloat16), w_OI).to(at::kFloat);
  return widened_backward(dy_TO, w_OI);
}

}  // namespace kernels
}  // namespace evenkeel
