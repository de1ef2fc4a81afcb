#include "nn/dense/norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
T inverse_rms(const T* row, int64_t width, double eps) {
  return T(1) / std::sqrt(kernels::dot(row, row, width) / static_cast<T>(width) + static_cast<T>(eps));
}

template <typename T>
void normalise(const at::Tensor& x_TD, const at::Tensor& w_D, double eps, at::Tensor& y_TD) {
  const T *x = x_TD.const_data_ptr<T>(), *w = w_D.const_data_ptr<T>();
  T* y = y_TD.mutable_data_ptr<T>();
  const int64_t width = x_TD.size(1);
  for_each_range(x_TD.size(0), kernels::row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* row = x + t * width;
      kernels::scaled_product(inverse_rms(row, width, eps), row, w, y + t * width, width);
    }
  });
}

template <typename T>
at::Tensor inverse_rms_of_rows(const at::Tensor& x_TD, double eps) {
  auto rstd_T = at::empty({x_TD.size(0)}, x_TD.options());
  const T* x = x_TD.const_data_ptr<T>();
  T* rstd = rstd_T.mutable_data_ptr<T>();
  const int64_t width = x_TD.size(1);
  for_each_range(x_TD.size(0), kernels::row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) rstd[t] = inverse_rms(x + t * width, width, eps);
  });
  return rstd_T;
}

// Computes dx = rstd * (w dy - x * rstd^2 * mean(w dy x))
template <typename T>
void normalise_backward(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& w_D, double eps,
                        at::Tensor& dx_TD) {
  const T *dy = dy_TD.const_data_ptr<T>(), *x = x_TD.const_data_ptr<T>(), *w = w_D.const_data_ptr<T>();
  T* dx = dx_TD.mutable_data_ptr<T>();
  const int64_t width = x_TD.size(1);
  for_each_range(x_TD.size(0), kernels::row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const T* row = x + t * width;
      T* out = dx + t * width;
      const T rstd = inverse_rms(row, width, eps);
      kernels::scaled_product(rstd, dy + t * width, w, out, width);
      const T inner = kernels::dot(out, row, width);
      kernels::axpy(-inner * rstd * rstd / static_cast<T>(width), row, out, width);
    }
  });
}

template <typename T>
RmsNormGradients gradients_as(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& w_D, double eps,
                              bool dx_wanted, bool dw_wanted) {
  RmsNormGradients out;
  if (dx_wanted) normalise_backward<T>(dy_TD, x_TD, w_D, eps, out.dx_TD = at::empty_like(x_TD));
  if (dw_wanted) out.dw_D = (dy_TD * x_TD).mul_(inverse_rms_of_rows<T>(x_TD, eps).unsqueeze(1)).sum(0);
  return out;
}

struct RmsNormNode : torch::autograd::Function<RmsNormNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, const at::Tensor& w_D, double eps) {
    auto y_TD = at::empty_like(x_TD);
    x_TD.scalar_type() == at::kDouble ? normalise<double>(x_TD, w_D, eps, y_TD)
                                      : normalise<float>(x_TD, w_D, eps, y_TD);
    ctx->save_for_backward({x_TD, w_D});
    ctx->saved_data["eps"] = eps;
    return y_TD;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    auto out = rms_norm_backward(grads[0].contiguous(), saved[0], saved[1], ctx->saved_data["eps"].toDouble(),
                                 ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    return {out.dx_TD, out.dw_D, at::Tensor()};
  }
};

}  // namespace

void check_norm_shapes(const at::Tensor& x_TD, const at::Tensor& weight_D) {
  EK_CHECK(x_TD.dim() == 2 && weight_D.dim() == 1 && x_TD.size(1) == weight_D.size(0), kShape, "rms_norm: x has sizes ",
           x_TD.sizes(), ", the weight ", weight_D.sizes());
}

at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps) {
  check_norm_shapes(x_TD, weight_D);
  return RmsNormNode::apply(x_TD.contiguous(), weight_D.to(x_TD.scalar_type()).contiguous(), eps);
}

RmsNormGradients rms_norm_backward(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& weight_D,
                                   double eps, bool dx_wanted, bool dw_wanted) {
  const auto gradients = x_TD.scalar_type() == at::kDouble ? gradients_as<double> : gradients_as<float>;
  return gradients(dy_TD, x_TD, weight_D, eps, dx_wanted, dw_wanted);
}

at::Tensor layer_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, const at::Tensor& bias_D, double eps) {
  EK_CHECK(x_TD.dim() == 2, kShape, "layer_norm: x has sizes ", x_TD.sizes());
  for (const auto* p_D : {&weight_D, &bias_D})
    EK_CHECK(!p_D->defined() || (p_D->dim() == 1 && p_D->size(0) == x_TD.size(1)), kShape, "layer_norm: x has sizes ",
             x_TD.sizes(), ", its weight or bias ", p_D->sizes());
  const auto in_dtype_of_x = [&](const at::Tensor& p_D) { return p_D.defined() ? p_D.to(x_TD.scalar_type()) : p_D; };
  return at::layer_norm(x_TD, {x_TD.size(1)}, in_dtype_of_x(weight_D), in_dtype_of_x(bias_D), eps);
}

}  // namespace evenkeel::nn
