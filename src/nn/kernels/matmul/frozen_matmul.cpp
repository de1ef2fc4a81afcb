#include "nn/kernels/matmul/frozen_matmul.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "nn/kernels/matmul/gemm.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::kernels {
namespace {

constexpr int64_t kSmallestNarrowWeight = int64_t{1} << 18;

// Rows widened at once: 1 MiB of float32 for a thread by itself, the size of a second-level cache; 8 MiB for all.
int64_t panel_rows(const StoredMatrix& w) {
  const int64_t numbers = int64_t{1} << (at::in_parallel_region() ? 18 : 21);
  return std::clamp<int64_t>(numbers / std::max<int64_t>(w.in, 1), 16, 4096);
}

template <typename T>
void widen_row(const StoredMatrix& w, int64_t row, T* to) {
  const auto* from =
      static_cast<const char*>(w.data) + row * w.stride * static_cast<int64_t>(c10::elementSize(w.dtype));
  if (w.dtype != c10::kChar) return widen(from, w.dtype, to, w.in);
  const auto* codes = reinterpret_cast<const int8_t*>(from);
  for (int64_t i = 0; i < w.in; ++i) to[i] = static_cast<T>(w.scales[row]) * static_cast<T>(codes[i]);
}

// Rows [first, first + rows) in T, and how far apart they are: the weight itself where it is stored so.
template <typename T>
struct Panel {
  const T* data;
  int64_t stride;
};
template <typename T>
Panel<T> widened_rows(const StoredMatrix& w, int64_t first, int64_t rows, Scratch<T>& scratch) {
  if (w.dtype == c10::CppTypeToScalarType<T>::value)
    return {static_cast<const T*>(w.data) + first * w.stride, w.stride};
  T* panel = scratch.at_least(rows * w.in);
  for_each_range(rows, row_grain(w.in), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) widen_row(w, first + r, panel + r * w.in);
  });
  return {panel, w.in};
}

template <typename T>
void widened_forward(const ActivationsOf<T>& x, const StoredMatrix& w, const ResultOf<T>& y,
                     ProductScratch<T>& scratch) {
  const int64_t step = w.dtype == c10::CppTypeToScalarType<T>::value ? w.out : panel_rows(w);
  for (int64_t o = 0; o < w.out; o += step) {
    const int64_t n = std::min(step, w.out - o);
    const auto panel = widened_rows(w, o, n, scratch.panel);
    gemm(Op::kNone, Op::kTranspose, x.rows, n, w.in, x.scale, x.data, x.stride, panel.data, panel.stride,
         T(y.add ? 1 : 0), y.data + o, y.stride);
  }
}

template <typename T>
void widened_backward(const ActivationsOf<T>& x, const StoredMatrix& w, const ResultOf<T>& y,
                      ProductScratch<T>& scratch) {
  const int64_t step = w.dtype == c10::CppTypeToScalarType<T>::value ? w.out : panel_rows(w);
  for (int64_t o = 0; o < w.out; o += step) {
    const int64_t n = std::min(step, w.out - o);
    const auto panel = widened_rows(w, o, n, scratch.panel);
    gemm(Op::kNone, Op::kNone, x.rows, w.in, n, x.scale, x.data + o, x.stride, panel.data, panel.stride,
         T(y.add || o > 0 ? 1 : 0), y.data, y.stride);
  }
}

at::Tensor view_of(const void* data, int64_t rows, int64_t columns, int64_t stride) {
  return at::from_blob(const_cast<void*>(data), {rows, columns}, {stride, 1}, at::kBFloat16);
}

// The library's bfloat16 product writes bfloat16, so operands and result pass through narrow copies.
void native_product(const Activations& x, const StoredMatrix& w, Direction direction, const Result& y,
                    ProductScratch<float>& scratch) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const bool forward = direction == Direction::kForward;
  const int64_t in = forward ? w.in : w.out, out = forward ? w.out : w.in;
  EK_CHECK(x.scale == 1, kInternal, "a bfloat16 product of scaled activations");
  auto* narrow_x = reinterpret_cast<c10::BFloat16*>(scratch.narrow_in.at_least(x.rows * in));
  auto* narrow_y = reinterpret_cast<c10::BFloat16*>(scratch.narrow_out.at_least(x.rows * out));
  const auto each_row = [&](int64_t width, const auto& f) {
    for_each_range(x.rows, row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) f(r);
    });
  };
  each_row(in, [&](int64_t r) { narrow(x.data + r * x.stride, narrow_x + r * in, in); });
  auto result = view_of(narrow_y, x.rows, out, out);
  const auto weight = view_of(w.data, w.out, w.in, w.stride);
  at::mm_out(result, view_of(narrow_x, x.rows, in, in), forward ? weight.t() : weight);
  each_row(out, [&](int64_t r) {
    float* to = y.data + r * y.stride;
    y.add ? add_widened(narrow_y + r * out, to, out) : widen(narrow_y + r * out, c10::kBFloat16, to, out);
  });
}

// The kernels that are our own loops, and how those take terms.
constexpr std::array kOurs{std::pair{ProductKernel::kOwn, Arithmetic::kSingles},
                           std::pair{ProductKernel::kDot, Arithmetic::kPairs},
                           std::pair{ProductKernel::kTile, Arithmetic::kTiles}};

bool rounds_activations(ProductKernel ours) { return ours == ProductKernel::kDot || ours == ProductKernel::kTile; }

bool is_ours(ProductKernel kernel) {
  return std::any_of(kOurs.begin(), kOurs.end(), [&](const auto& ours) { return ours.first == kernel; });
}

Activations in(Arithmetic arithmetic, Activations x) {
  x.arithmetic = arithmetic;
  return x;
}

// What our own products add while they multiply, after one of the library's.
template <typename T>
void add_after(Direction direction, const SideBySideOf<T>& product, ProductScratch<T>& scratch) {
  for (const auto& [x, w] : product.addends) {
    const SideBySideOf<T> one{w, {product.y.data, product.y.stride, true}};
    direction == Direction::kForward ? times_transposed<T>(ProductKernel::kOwn, x, std::span(&one, 1), scratch)
                                     : times<T>(ProductKernel::kOwn, x, one, scratch);
  }
}

// By the library.
template <typename T>
void multiply_alone(ProductKernel kernel, Direction direction, const ActivationsOf<T>& x,
                    const SideBySideOf<T>& product, ProductScratch<T>& scratch) {
  const auto& [w, y, addends] = product;
  if constexpr (std::is_same_v<T, float>)
    if (kernel == ProductKernel::kNative) {
      native_product(x, w, direction, y, scratch);
      return add_after(direction, product, scratch);
    }
  direction == Direction::kForward ? widened_forward(x, w, y, scratch) : widened_backward(x, w, y, scratch);
  add_after(direction, product, scratch);
}

}  // namespace

ProductKernel kernel_for(const StoredMatrix& w, ProductKernel asked) {
  const bool large = w.out * w.in >= kSmallestNarrowWeight;
  if (rounds_activations(asked))
    return large && (w.dtype == c10::kBFloat16 || w.dtype == c10::kChar) ? asked : ProductKernel::kOwn;
  if (asked == ProductKernel::kNative) return large && w.dtype == c10::kBFloat16 ? asked : ProductKernel::kOwn;
  return w.dtype == c10::kBFloat16 || w.dtype == c10::kHalf ? asked : ProductKernel::kOwn;
}

template <typename T>
void times_transposed(ProductKernel kernel, const ActivationsOf<T>& x, std::span<const SideBySideOf<T>> products,
                      ProductScratch<T>& scratch) {
  if constexpr (std::is_same_v<T, double>) {
    for (const auto& product : products)
      multiply_alone(ProductKernel::kWiden, Direction::kForward, x, product, scratch);
  } else {
    std::vector<SideBySide> together;
    for (const auto& [ours, arithmetic] : kOurs) {
      together.clear();
      for (const auto& product : products)
        if (kernel_for(product.w, kernel) == ours) together.push_back(product);
      times_transposed(in(arithmetic, x), together, scratch.packed);
    }
    for (const auto& product : products) {
      const auto taken = kernel_for(product.w, kernel);
      if (!is_ours(taken)) multiply_alone(taken, Direction::kForward, x, product, scratch);
    }
  }
}

template <typename T>
void times(ProductKernel kernel, const ActivationsOf<T>& x, const SideBySideOf<T>& product,
           ProductScratch<T>& scratch) {
  if constexpr (std::is_same_v<T, double>) {
    multiply_alone(ProductKernel::kWiden, Direction::kBackward, x, product, scratch);
  } else {
    const auto taken = kernel_for(product.w, kernel);
    for (const auto& [ours, arithmetic] : kOurs)
      if (taken == ours) return times(in(arithmetic, x), product, scratch.packed);
    multiply_alone(taken, Direction::kBackward, x, product, scratch);
  }
}

template <typename T>
void transposed_times(const ActivationsOf<T>& x, int64_t width, const StoredMatrix& w, const ResultOf<T>& y,
                      ProductScratch<T>& scratch) {
  if constexpr (std::is_same_v<T, float>)
    transposed_times(x, width, w, y, scratch.packed);
  else
    gemm(Op::kTranspose, Op::kNone, width, w.in, x.rows, x.scale, x.data, x.stride, static_cast<const T*>(w.data),
         w.stride, T(y.add ? 1 : 0), y.data, y.stride);
}

#define EK_INSTANTIATE(T)                                                                                      \
  template void times_transposed<T>(ProductKernel, const ActivationsOf<T>&, std::span<const SideBySideOf<T>>,  \
                                    ProductScratch<T>&);                                                       \
  template void times<T>(ProductKernel, const ActivationsOf<T>&, const SideBySideOf<T>&, ProductScratch<T>&);  \
  template void transposed_times<T>(const ActivationsOf<T>&, int64_t, const StoredMatrix&, const ResultOf<T>&, \
                                    ProductScratch<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::kernels
