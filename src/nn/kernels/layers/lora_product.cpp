#include "nn/kernels/layers/lora_product.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn::kernels {
namespace {

StoredMatrix first_matrix(const at::Tensor& factors) {
  const int64_t out = factors.size(-2), in = factors.size(-1);
  return {.data = factors.const_data_ptr(), .dtype = factors.scalar_type(), .out = out, .in = in, .stride = in};
}

const void* moved(const StoredMatrix& w, int64_t numbers) {
  return static_cast<const char*>(w.data) + numbers * static_cast<int64_t>(c10::elementSize(w.dtype));
}

constexpr int64_t kMinTransposedRows = 128;  // rows from which transposing dB twice costs little

// Computes out [columns, rows] = in [rows, columns]^T, in bands of rows that stay in the cache.
template <typename T>
void transpose(const T* in, int64_t rows, int64_t columns, T* out) {
  constexpr int64_t kSide = 16;
  for (int64_t r = 0; r < rows; r += kSide)
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t i = r; i < std::min(r + kSide, rows); ++i) out[c * rows + i] = in[i * columns + c];
}

// Computes dB += dy^T xa, with xa [N, R] scaled. With many rows it computes (xa^T dy)^T, which has the same bits:
// panels of R columns would be half empty, panels of the columns of dy are full.
template <typename T>
void add_product_of_dy(const LoraView<T>& lora, const LoraPass<T>& pass, const T* xa, LoraScratch<T>& scratch,
                       MatmulScratch<T>& product) {
  const int64_t rows = pass.rows, rank = lora.rank, out = lora.out;
  if (rows < kMinTransposedRows)
    return matmul_tn<T>({pass.dy, rows, out}, out, dense_matrix(xa, rows, rank), {lora.db, rank, true}, product);
  T* db = scratch.db.at_least(out * rank);
  transpose(lora.db, out, rank, db);
  matmul_tn<T>({xa, rows, rank}, rank, dense_matrix(pass.dy, rows, out), {db, out, true}, product);
  transpose(db, rank, out, lora.db);
}

}  // namespace

at::Tensor frozen_factor(const at::Tensor& factor, c10::ScalarType dtype) {
  const bool narrow = factor.scalar_type() == at::kBFloat16 || factor.scalar_type() == at::kHalf;
  const auto converted = narrow ? factor : factor.to(dtype);
  const bool gapless = converted.stride(-1) == 1 && converted.stride(-2) == converted.size(-1);
  return gapless ? converted : converted.contiguous();
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
void factor_gradients(const LoraView<T>& lora, const LoraPass<T>& pass, LoraScratch<T>& scratch,
                      MatmulScratch<T>& product) {
  const int64_t rows = pass.rows, rank = lora.rank;
  const auto weight = [&](int64_t n) { return pass.row_weights ? pass.row_weights[n] : T(1); };
  if (lora.da) {
    for (int64_t n = 0; pass.row_weights && n < rows; ++n)
      scaled_copy(weight(n), pass.dy_b + n * rank, pass.dy_b + n * rank, rank);
    matmul_tn<T>({pass.dy_b, rows, rank}, rank, dense_matrix(pass.x, rows, lora.in), {lora.da, lora.in, true}, product);
  }
  if (lora.db) {
    T* xa = scratch.xa.at_least(rows * rank);
    for (int64_t n = 0; n < rows; ++n)
      scaled_copy(weight(n) * lora.scaling, pass.xa + n * pass.xa_stride, xa + n * rank, rank);
    add_product_of_dy(lora, pass, xa, scratch, product);
  }
}

#define EK_INSTANTIATE(T)      \
  template struct LoraView<T>; \
  template void factor_gradients<T>(const LoraView<T>&, const LoraPass<T>&, LoraScratch<T>&, MatmulScratch<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::nn::kernels
