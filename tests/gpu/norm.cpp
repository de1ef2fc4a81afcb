// The fused RMS norm, whose backward pass only CUDA has. Computed in float32, or float64 for float64.

#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "device_memory.h"
#include "recorder.h"
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
  const auto work = [own = on_processor(x), w = on_processor(*weight), eps] {
    const auto x_TD = own.to(wide(own));
    const auto rstd_T1 = at::rsqrt(x_TD.square().mean(1, true) + eps.value_or(0));
    return std::vector<at::Tensor>{(x_TD * rstd_T1 * w).to(own.scalar_type()), rstd_T1};
  };
  const auto results = launched(work, x.device());
  return {results[0], results[1]};
}

NormPair rms_norm_backward(const at::Tensor& grad, const at::Tensor& x, at::IntArrayRef, const at::Tensor& rstd,
                           const std::optional<at::Tensor>& weight, std::array<bool, 2> wanted) {
  check_rows(x, weight);
  TORCH_CHECK(grad.is_contiguous() && grad.scalar_type() == x.scalar_type(), "fused RMS norm: contiguous gradients");
  const auto work = [own = on_processor(x), dy = on_processor(grad), rstd_T1 = on_processor(rstd),
                     w = on_processor(*weight), wanted] {
    const auto x_TD = own.to(wide(own)), dy_TD = dy.to(wide(own)), y_TD = x_TD * rstd_T1, wdy_TD = dy_TD * w;
    const auto dx_TD = rstd_T1 * (wdy_TD - y_TD * (wdy_TD * y_TD).mean(1, true));
    std::vector<at::Tensor> results;
    if (wanted[0]) results.push_back(dx_TD.to(own.scalar_type()));
    if (wanted[1]) results.push_back((dy_TD * y_TD).sum(0).to(own.scalar_type()));
    return results;
  };
  const auto results = launched(work, x.device());
  return {wanted[0] ? results.front() : at::Tensor(), wanted[1] ? results.back() : at::Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("_fused_rms_norm", &rms_norm);
  m.impl("_fused_rms_norm_backward", &rms_norm_backward);
}

}  // namespace evenkeel::simulated_gpu
