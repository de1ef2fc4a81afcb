#include "nn/kernels/packed_product.h"

#include <ATen/Parallel.h>

#include <vector>

#include "base/error.h"
#include "nn/kernels/vector.h"

namespace evenkeel::kernels {
namespace {

std::vector<float> widened_row(const StoredMatrix& w, int64_t o) {
  std::vector<float> row(static_cast<size_t>(w.in));
  const int64_t at = o * w.stride;
  if (w.dtype == c10::kChar) {
    const auto* codes = static_cast<const int8_t*>(w.data) + at;
    for (int64_t i = 0; i < w.in; ++i) row[static_cast<size_t>(i)] = w.scales[o] * static_cast<float>(codes[i]);
  } else {
    const auto size = static_cast<int64_t>(c10::elementSize(w.dtype));
    widen(static_cast<const char*>(w.data) + at * size, w.dtype, row.data(), w.in);
  }
  return row;
}

void clear(int64_t rows, int64_t width, const Result& y) {
  for (int64_t r = 0; r < rows && !y.add; ++r) std::fill_n(y.data + r * y.stride, width, 0.0f);
}

}  // namespace

void times_transposed(const Activations& x, const StoredMatrix& w, const Result& y, PackedScratch&) {
  clear(x.rows, w.out, y);
  for (int64_t o = 0; o < w.out; ++o) {
    const auto row = widened_row(w, o);
    for (int64_t r = 0; r < x.rows; ++r)
      y.data[r * y.stride + o] += x.scale * dot(x.data + r * x.stride, row.data(), w.in);
  }
}

void times_transposed(const Activations& x, std::span<const SideBySide> products, PackedScratch& scratch) {
  for (const auto& product : products) times_transposed(x, product.w, product.y, scratch);
}

void times(const Activations& x, const StoredMatrix& w, const Result& y, PackedScratch&) {
  clear(x.rows, w.in, y);
  for (int64_t o = 0; o < w.out; ++o) {
    const auto row = widened_row(w, o);
    for (int64_t r = 0; r < x.rows; ++r)
      axpy(x.scale * x.data[r * x.stride + o], row.data(), y.data + r * y.stride, w.in);
  }
}

void transposed_times(const Activations& x, int64_t width, const StoredMatrix& w, const Result& y, PackedScratch&) {
  clear(width, w.in, y);
  for (int64_t o = 0; o < w.out; ++o) {
    const auto row = widened_row(w, o);
    for (int64_t r = 0; r < width; ++r)
      axpy(x.scale * x.data[o * x.stride + r], row.data(), y.data + r * y.stride, w.in);
  }
}

}  // namespace evenkeel::kernels
