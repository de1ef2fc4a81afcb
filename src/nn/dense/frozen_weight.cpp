#include "nn/dense/frozen_weight.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/plain/error.h"
#include "nn/kernels/matmul/matmul.h"
#include "nn/kernels/primitives/vector.h"
#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::nn {
namespace {

using kernels::MatmulScratch;

template <typename T>
void multiply(Direction direction, const at::Tensor& x, const FrozenWeight& w, const MatmulTable& products,
              at::Tensor& out) {
  const auto kernel = products.at(GemmContext::kLinear, direction, x.size(0));
  const kernels::ActivationsOf<T> from{x.const_data_ptr<T>(), x.size(0), x.stride(0)};
  const kernels::ResultOf<T> to{out.mutable_data_ptr<T>(), out.stride(0)};
  const auto stored = kernels::StoredMatrix::of(w.values_OI, w.scales_O);
  const kernels::WorkspaceLease<kernels::MatmulScratch<T>> scratch(
      kernels::workspace_pool<kernels::MatmulScratch<T>>());
  if (direction == Direction::kForward)
    kernels::matmul_nt<T>(kernel, from, stored, to, *scratch);
  else
    kernels::matmul_nn<T>(kernel, from, {stored, to}, *scratch);
}

void multiply_out(Direction direction, const at::Tensor& x, const FrozenWeight& w, const MatmulTable& products,
                  at::Tensor& out) {
  if (x.scalar_type() == at::kDouble)
    multiply<double>(direction, x, w, products, out);
  else
    multiply<float>(direction, x, w, products, out);
}

// Quantises one row. \return its scale
float quantize_row(const kernels::StoredMatrix& w, int64_t o, std::vector<float>& row, int8_t* codes) {
  const auto size = static_cast<int64_t>(c10::elementSize(w.dtype));
  kernels::widen(static_cast<const char*>(w.data) + o * w.stride * size, w.dtype, row.data(), w.in);
  float largest = 0;
  for (const float x : row) largest = std::max(largest, std::abs(x));
  const float scale = largest / 127, divisor = scale > 0 ? scale : 1;
  for (size_t i = 0; i < row.size(); ++i) codes[i] = static_cast<int8_t>(std::nearbyint(row[i] / divisor));
  return scale;
}

}  // namespace

void check_linear_shapes(const at::Tensor& x, const at::Tensor& w) {
  EK_CHECK(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1), kShape, "linear: x has sizes ", x.sizes(),
           ", the weight ", w.sizes());
}

void check_factor_shapes(const at::Tensor& a, const at::Tensor& b, const at::Tensor& w_OI) {
  EK_CHECK(
      a.dim() == 2 && b.dim() == 2 && a.size(1) == w_OI.size(1) && b.size(0) == w_OI.size(0) && a.size(0) == b.size(1),
      kShape, "linear: adapter a has sizes ", a.sizes(), " and b ", b.sizes(), " beside a weight of ", w_OI.sizes());
}

int64_t FrozenWeight::bytes() const {
  return static_cast<int64_t>(values_OI.nbytes() + (scales_O.defined() ? scales_O.nbytes() : 0));
}

at::Tensor FrozenWeight::widened(at::ScalarType dtype) const {
  const auto wide = values_OI.to(dtype);
  return scales_O.defined() ? wide * scales_O.to(dtype).unsqueeze(1) : wide;
}

FrozenWeight quantized(const at::Tensor& w_OI) {
  const auto w = kernels::StoredMatrix::of(w_OI.contiguous());
  FrozenWeight result(at::empty({w.out, w.in}, at::kChar), at::empty({w.out}, at::kFloat));
  auto* codes = result.values_OI.mutable_data_ptr<int8_t>();
  auto* scales = result.scales_O.mutable_data_ptr<float>();
  at::parallel_for(0, w.out, kernels::row_grain(w.in), [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(w.in));
    for (int64_t o = begin; o < end; ++o) scales[o] = quantize_row(w, o, row, codes + o * w.in);
  });
  return result;
}

void matmul_nt_out(at::Tensor& out_TO, const at::Tensor& x_TI, const FrozenWeight& w, const MatmulTable& products) {
  multiply_out(Direction::kForward, x_TI, w, products, out_TO);
}

at::Tensor matmul_nt(const at::Tensor& x_TI, const FrozenWeight& w, const MatmulTable& products) {
  auto out_TO = at::empty({x_TI.size(0), w.out()}, x_TI.options());
  matmul_nt_out(out_TO, x_TI, w, products);
  return out_TO;
}

at::Tensor matmul_nn(const at::Tensor& dy_TO, const FrozenWeight& w, const MatmulTable& products) {
  auto dx_TI = at::empty({dy_TO.size(0), w.in()}, dy_TO.options());
  multiply_out(Direction::kBackward, dy_TO, w, products, dx_TI);
  return dx_TI;
}

}  // namespace evenkeel::nn
