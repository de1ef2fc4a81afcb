// The fused RMS norm, whose backward pass only CUDA has. Computed in float32, or float64 for float64.

#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

#include "device_memory.h"
#include "transfers.h"

namespace evenkeel::simulated_gpu {
namespace {

at::ScalarType wide(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

using NormPair = std::tuple<at::Tensor, at::Tensor>;

void check_rows(const at::Tensor& x, const std::optional<at::Tensor>& weight) {
  TORCH_CHECK(x.dim() == 2 && x.is_contiguous() && weight && weight->is_contiguous() && weight->is_cuda(),
              "fused RMS norm: contiguous rows and weights on the device");
  TORCH_CHECK(weight->scalar_type() == x.scalar_type(), "fused RMS norm: one type");
}

NormPair rms_norm(const at::Tensor& x, at::IntArrayRef, const std::optional<at::Tensor>& weight,
                  std::optional<double> eps) {
  check_rows(x, weight);
  const Operator counted;
  const auto x_TD = on_processor(x).to(wide(x));
  const auto rstd_T1 = at::rsqrt(x_TD.square().mean(1, true) + eps.value_or(0));
  return {on_gpu((x_TD * rstd_T1 * on_processor(*weight)).to(x.scalar_type()), x.device()),
          on_gpu(rstd_T1, x.device())};
}

NormPair rms_norm_backward(const at::Tensor& grad, const at::Tensor& x, at::IntArrayRef, const at::Tensor& rstd,
                           const std::optional<at::Tensor>& weight, std::array<bool, 2> wanted) {
  check_rows(x, weight);
  TORCH_CHECK(grad.is_contiguous() && grad.scalar_type() == x.scalar_type(), "fused RMS norm: contiguous gradients");
  const Operator counted;
  const auto x_TD = on_processor(x).to(wide(x)), dy_TD = on_processor(grad).to(wide(x)), rstd_T1 = on_processor(rstd);
  const auto y_TD = x_TD * rstd_T1, wdy_TD = dy_TD * on_processor(*weight);
  const auto dx_TD = rstd_T1 * (wdy_TD - y_TD * (wdy_TD * y_TD).mean(1, true));
  const auto back = [&](const at::Tensor& value) { return on_gpu(value.to(x.scalar_type()), x.device()); };
  return {wanted[0] ? back(dx_TD) : at::Tensor(), wanted[1] ? back((dy_TD * y_TD).sum(0)) : at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("_fused_rms_norm", &rms_norm);
  m.impl("_fused_rms_norm_backward", &rms_norm_backward);
}

}  // namespace evenkeel::simulated_gpu
