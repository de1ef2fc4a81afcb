#include "nn/kernels/lora_product.h"

#include <ATen/ATen.h>

#include "nn/kernels/vector.h"

namespace evenkeel::kernels {
namespace {

StoredMatrix first_matrix(const at::Tensor& factors) {
  const int64_t out = factors.size(-2), in = factors.size(-1);
  return {.data = factors.const_data_ptr(), .dtype = factors.scalar_type(), .out = out, .in = in, .stride = in};
}

const void* moved(const StoredMatrix& w, int64_t numbers) {
  return static_cast<const char*>(w.data) + numbers * static_cast<int64_t>(c10::elementSize(w.dtype));
}

}  // namespace

at::Tensor frozen_factor(const at::Tensor& factor, c10::ScalarType dtype) {
  const bool narrow = factor.scalar_type() == at::kBFloat16 || factor.scalar_type() == at::kHalf;
  const auto taken = narrow ? factor : factor.to(dtype);
  const bool gapless = taken.stride(-1) == 1 && taken.stride(-2) == taken.size(-1);
  return gapless ? taken : taken.contiguous();
}

template <typename T>
LoraView<T> LoraView<T>::of(const at::Tensor& a, const at::Tensor& b, double scaling) {
  if (a.numel() == 0) return {};
  const bool stacked = a.dim() == 3;
  return {.a = first_matrix(a),
          .b = first_matrix(b),
          .a_step = stacked ? a.stride(0) : 0,
          .b_step = stacked ? b.stride(0) : 0,
          .rank = a.size(-2),
          .in = a.size(-1),
          .out = b.size(-2),
          .scaling = static_cast<T>(scaling)};
}

template <typename T>
LoraView<T> LoraView<T>::expert(int64_t e) const {
  auto one = *this;
  one.a.data = moved(a, e * a_step);
  one.b.data = moved(b, e * b_step);
  if (da) one.da += e * rank * in;
  if (db) one.db += e * out * rank;
  return one;
}

template <typename T>
void add_outer_product(const LoraView<T>& lora, const T* xa, int64_t xa_stride, int64_t rows, const ResultOf<T>& y,
                       ProductScratch<T>& scratch) {
  times_transposed<T>(ProductKernel::kOwn, {xa, rows, xa_stride, lora.scaling}, lora.b, {y.data, y.stride, true},
                      scratch);
}

template <typename T>
T* outer_backward(const LoraView<T>& lora, const LoraPass<T>& pass, T* dx, LoraScratch<T>& scratch,
                  ProductScratch<T>& product) {
  T* dy_b = scratch.dy_b.at_least(pass.rows * lora.rank);
  times<T>(ProductKernel::kOwn, {pass.dy, pass.rows, lora.out, lora.scaling}, lora.b, {dy_b, lora.rank}, product);
  if (dx) times<T>(ProductKernel::kOwn, {dy_b, pass.rows, lora.rank}, lora.a, {dx, lora.in, true}, product);
  return dy_b;
}

template <typename T>
void factor_gradients(const LoraView<T>& lora, const LoraPass<T>& pass, T* dy_b, LoraScratch<T>& scratch,
                      ProductScratch<T>& product) {
  const int64_t rows = pass.rows, rank = lora.rank;
  const auto weight = [&](int64_t n) { return pass.row_weights ? pass.row_weights[n] : T(1); };
  if (lora.da) {
    for (int64_t n = 0; pass.row_weights && n < rows; ++n)
      scaled_copy(weight(n), dy_b + n * rank, dy_b + n * rank, rank);
    transposed_times<T>({dy_b, rows, rank}, rank, dense_matrix(pass.x, rows, lora.in), {lora.da, lora.in, true},
                        product);
  }
  if (lora.db) {
    T* xa = scratch.xa.at_least(rows * rank);
    for (int64_t n = 0; n < rows; ++n)
      scaled_copy(weight(n) * lora.scaling, pass.xa + n * pass.xa_stride, xa + n * rank, rank);
    transposed_times<T>({pass.dy, rows, lora.out}, lora.out, dense_matrix(static_cast<const T*>(xa), rows, rank),
                        {lora.db, rank, true}, product);
  }
}

#define EK_INSTANTIATE(T)                                                                                         \
  template struct LoraView<T>;                                                                                    \
  template void add_outer_product<T>(const LoraView<T>&, const T*, int64_t, int64_t, const ResultOf<T>&,          \
                                     ProductScratch<T>&);                                                         \
  template T* outer_backward<T>(const LoraView<T>&, const LoraPass<T>&, T*, LoraScratch<T>&, ProductScratch<T>&); \
  template void factor_gradients<T>(const LoraView<T>&, const LoraPass<T>&, T*, LoraScratch<T>&, ProductScratch<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::kernels
