#include "nn/kernels/lora_product.h"

#include "nn/kernels/vector.h"

namespace evenkeel::kernels {

template <typename T>
void add_outer_product(const LoraView<T>& lora, const T* xa, int64_t xa_stride, int64_t rows, const ResultOf<T>& y,
                       ProductScratch<T>& scratch) {
  times_transposed<T>(ProductKernel::kOwn, {xa, rows, xa_stride, lora.scaling},
                      dense_matrix(lora.b, lora.out, lora.rank), {y.data, y.stride, true}, scratch);
}

template <typename T>
T* outer_backward(const LoraView<T>& lora, const LoraPass<T>& pass, T* dx, LoraScratch<T>& scratch,
                  ProductScratch<T>& product) {
  T* dy_b = scratch.dy_b.at_least(pass.rows * lora.rank);
  times<T>(ProductKernel::kOwn, {pass.dy, pass.rows, lora.out, lora.scaling}, dense_matrix(lora.b, lora.out, lora.rank),
           {dy_b, lora.rank}, product);
  if (dx)
    times<T>(ProductKernel::kOwn, {dy_b, pass.rows, lora.rank}, dense_matrix(lora.a, lora.rank, lora.in),
             {dx, lora.in, true}, product);
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
  template void add_outer_product<T>(const LoraView<T>&, const T*, int64_t, int64_t, const ResultOf<T>&,          \
                                     ProductScratch<T>&);                                                         \
  template T* outer_backward<T>(const LoraView<T>&, const LoraPass<T>&, T*, LoraScratch<T>&, ProductScratch<T>&); \
  template void factor_gradients<T>(const LoraView<T>&, const LoraPass<T>&, T*, LoraScratch<T>&, ProductScratch<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::kernels
