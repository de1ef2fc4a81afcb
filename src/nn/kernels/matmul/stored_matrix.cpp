#include "nn/kernels/matmul/stored_matrix.h"

#include "base/plain/error.h"

namespace evenkeel::nn::kernels {

StoredMatrix StoredMatrix::of(const at::Tensor& w_OI, const at::Tensor& scales_O) {
  EK_CHECK(w_OI.dim() == 2 && w_OI.is_contiguous(), kShape, "a stored weight must be a contiguous matrix, got sizes ",
           w_OI.sizes());
  StoredMatrix w{.data = w_OI.const_data_ptr(), .dtype = w_OI.scalar_type(), .out = w_OI.size(0), .in = w_OI.size(1)};
  w.stride = w.in;
  if (w.dtype != at::kChar) return w;
  EK_CHECK(scales_O.defined() && scales_O.numel() == w.out && scales_O.scalar_type() == at::kFloat, kShape,
           "an int8 weight of ", w.out, " rows needs as many scales");
  w.scales = scales_O.const_data_ptr<float>();
  return w;
}

}  // namespace evenkeel::nn::kernels
