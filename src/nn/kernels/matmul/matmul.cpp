#include "nn/kernels/matmul/matmul.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/plain/error.h"
#include "base/system/parallel.h"
#include "nn/kernels/matmul/blas_gemm.h"
#include "nn/kernels/matmul/gemm.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn::kernels {
namespace {

constexpr int64_t kMinRoundedWeight = int64_t{1} << 18;

// Returns how many rows of the weight are converted at once. Inside a parallel region they take 1 MiB of float32, the
// size of a second-level cache. Outside they take 8 MiB, which all threads share.
int64_t upcast_block_rows(const StoredMatrix& w) {
  const int64_t numbers = int64_t{1} << (at::in_parallel_region() ? 18 : 21);
  return std::clamp<int64_t>(numbers / std::max<int64_t>(w.in, 1), 16, 4096);
}

template <typename T>
void upcast_row(const StoredMatrix& w, int64_t row, T* to) {
  const auto* from =
      static_cast<const char*>(w.data) + row * w.stride * static_cast<int64_t>(c10::elementSize(w.dtype));
  if (w.dtype != c10::kChar) return widen(from, w.dtype, to, w.in);
  const auto* codes = reinterpret_cast<const int8_t*>(from);
  for (int64_t i = 0; i < w.in; ++i) to[i] = static_cast<T>(w.scales[row]) * static_cast<T>(codes[i]);
}

// Rows of a weight in type T. The stride is in elements.
template <typename T>
struct UpcastRows {
  const T* data;
  int64_t stride;
};
// Returns rows [first, first + rows) in T. A weight that is stored in T is returned without a copy.
template <typename T>
UpcastRows<T> upcast_rows(const StoredMatrix& w, int64_t first, int64_t rows, Scratch<T>& scratch) {
  if (w.dtype == c10::CppTypeToScalarType<T>::value)
    return {static_cast<const T*>(w.data) + first * w.stride, w.stride};
  T* panel = scratch.at_least(rows * w.in);
  for_each_range(rows, row_grain(w.in), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) upcast_row(w, first + r, panel + r * w.in);
  });
  return {panel, w.in};
}

template <typename T>
void upcast_nt(const ActivationsOf<T>& x, const StoredMatrix& w, const ResultOf<T>& y, MatmulScratch<T>& scratch) {
  const int64_t step = w.dtype == c10::CppTypeToScalarType<T>::value ? w.out : upcast_block_rows(w);
  for (int64_t o = 0; o < w.out; o += step) {
    const int64_t n = std::min(step, w.out - o);
    const auto panel = upcast_rows(w, o, n, scratch.upcast);
    blas_gemm(Op::kNone, Op::kTranspose, x.rows, n, w.in, x.scale, x.data, x.stride, panel.data, panel.stride,
              T(y.add ? 1 : 0), y.data + o, y.stride);
  }
}

template <typename T>
void upcast_nn(const ActivationsOf<T>& x, const StoredMatrix& w, const ResultOf<T>& y, MatmulScratch<T>& scratch) {
  const int64_t step = w.dtype == c10::CppTypeToScalarType<T>::value ? w.out : upcast_block_rows(w);
  for (int64_t o = 0; o < w.out; o += step) {
    const int64_t n = std::min(step, w.out - o);
    const auto panel = upcast_rows(w, o, n, scratch.upcast);
    blas_gemm(Op::kNone, Op::kNone, x.rows, w.in, n, x.scale, x.data + o, x.stride, panel.data, panel.stride,
              T(y.add || o > 0 ? 1 : 0), y.data, y.stride);
  }
}

at::Tensor bf16_view(const void* data, int64_t rows, int64_t columns, int64_t stride) {
  return at::from_blob(const_cast<void*>(data), {rows, columns}, {stride, 1}, at::kBFloat16);
}

// Calls LibTorch's bfloat16 GEMM. It reads and writes bfloat16, so the activations and the result are converted.
void vendor_bf16_matmul(const Activations& x, const StoredMatrix& w, Direction direction, const Result& y,
                        MatmulScratch<float>& scratch) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const bool forward = direction == Direction::kForward;
  const int64_t in = forward ? w.in : w.out, out = forward ? w.out : w.in;
  EK_CHECK(x.scale == 1, kInternal, "a bfloat16 product of scaled activations");
  auto* narrow_x = reinterpret_cast<c10::BFloat16*>(scratch.bf16_in.at_least(x.rows * in));
  auto* narrow_y = reinterpret_cast<c10::BFloat16*>(scratch.bf16_out.at_least(x.rows * out));
  const auto each_row = [&](int64_t width, const auto& f) {
    for_each_range(x.rows, row_grain(width), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) f(r);
    });
  };
  each_row(in, [&](int64_t r) { narrow(x.data + r * x.stride, narrow_x + r * in, in); });
  auto result = bf16_view(narrow_y, x.rows, out, out);
  const auto weight = bf16_view(w.data, w.out, w.in, w.stride);
  at::mm_out(result, bf16_view(narrow_x, x.rows, in, in), forward ? weight.t() : weight);
  each_row(out, [&](int64_t r) {
    float* to = y.data + r * y.stride;
    y.add ? add_widened(narrow_y + r * out, to, out) : widen(narrow_y + r * out, c10::kBFloat16, to, out);
  });
}

// The kernels that gemm.h implements, with their arithmetic.
constexpr std::array kOwnKernels{std::pair{MatmulKernel::kFp32Exact, Arithmetic::kFp32},
                                 std::pair{MatmulKernel::kBf16Dot, Arithmetic::kBf16Pairs},
                                 std::pair{MatmulKernel::kBf16Tile, Arithmetic::kBf16Tiles}};

bool rounds_activations(MatmulKernel kernel) {
  return kernel == MatmulKernel::kBf16Dot || kernel == MatmulKernel::kBf16Tile;
}

bool is_own(MatmulKernel kernel) {
  return std::any_of(kOwnKernels.begin(), kOwnKernels.end(), [&](const auto& own) { return own.first == kernel; });
}

Activations with(Arithmetic arithmetic, Activations x) {
  x.arithmetic = arithmetic;
  return x;
}

// Adds the epilogues after a product of a library. (The kernels of this program add them inside the product.)
template <typename T>
void add_epilogues(Direction direction, const GroupedOperandOf<T>& product, MatmulScratch<T>& scratch) {
  for (const auto& [x, w] : product.epilogues) {
    const GroupedOperandOf<T> one{w, {product.y.data, product.y.stride, true}};
    direction == Direction::kForward ? matmul_nt<T>(MatmulKernel::kFp32Exact, x, std::span(&one, 1), scratch)
                                     : matmul_nn<T>(MatmulKernel::kFp32Exact, x, one, scratch);
  }
}

// Computes one product and its epilogues with a library.
template <typename T>
void multiply_with_library(MatmulKernel kernel, Direction direction, const ActivationsOf<T>& x,
                           const GroupedOperandOf<T>& product, MatmulScratch<T>& scratch) {
  const auto& [w, y, epilogues] = product;
  if constexpr (std::is_same_v<T, float>)
    if (kernel == MatmulKernel::kBf16Vendor) {
      vendor_bf16_matmul(x, w, direction, y, scratch);
      return add_epilogues(direction, product, scratch);
    }
  direction == Direction::kForward ? upcast_nt(x, w, y, scratch) : upcast_nn(x, w, y, scratch);
  add_epilogues(direction, product, scratch);
}

}  // namespace

MatmulKernel supported_kernel(const StoredMatrix& w, MatmulKernel requested) {
  const bool large = w.out * w.in >= kMinRoundedWeight;
  if (rounds_activations(requested))
    return large && (w.dtype == c10::kBFloat16 || w.dtype == c10::kChar) ? requested : MatmulKernel::kFp32Exact;
  if (requested == MatmulKernel::kBf16Vendor)
    return large && w.dtype == c10::kBFloat16 ? requested : MatmulKernel::kFp32Exact;
  return w.dtype == c10::kBFloat16 || w.dtype == c10::kHalf ? requested : MatmulKernel::kFp32Exact;
}

template <typename T>
void matmul_nt(MatmulKernel kernel, const ActivationsOf<T>& x, std::span<const GroupedOperandOf<T>> products,
               MatmulScratch<T>& scratch) {
  if constexpr (std::is_same_v<T, double>) {
    for (const auto& product : products)
      multiply_with_library(MatmulKernel::kUpcast, Direction::kForward, x, product, scratch);
  } else {
    std::vector<GroupedOperand> subset;
    for (const auto& [own, arithmetic] : kOwnKernels) {
      subset.clear();
      for (const auto& product : products)
        if (supported_kernel(product.w, kernel) == own) subset.push_back(product);
      gemm_nt(with(arithmetic, x), subset, scratch.gemm);
    }
    for (const auto& product : products) {
      const auto chosen = supported_kernel(product.w, kernel);
      if (!is_own(chosen)) multiply_with_library(chosen, Direction::kForward, x, product, scratch);
    }
  }
}

template <typename T>
void matmul_nn(MatmulKernel kernel, const ActivationsOf<T>& x, const GroupedOperandOf<T>& product,
               MatmulScratch<T>& scratch) {
  if constexpr (std::is_same_v<T, double>) {
    multiply_with_library(MatmulKernel::kUpcast, Direction::kBackward, x, product, scratch);
  } else {
    const auto chosen = supported_kernel(product.w, kernel);
    for (const auto& [own, arithmetic] : kOwnKernels)
      if (chosen == own) return gemm_nn(with(arithmetic, x), product, scratch.gemm);
    multiply_with_library(chosen, Direction::kBackward, x, product, scratch);
  }
}

template <typename T>
void matmul_tn(const ActivationsOf<T>& x, int64_t width, const StoredMatrix& w, const ResultOf<T>& y,
               MatmulScratch<T>& scratch) {
  if constexpr (std::is_same_v<T, float>)
    gemm_tn(x, width, w, y, scratch.gemm);
  else
    blas_gemm(Op::kTranspose, Op::kNone, width, w.in, x.rows, x.scale, x.data, x.stride, static_cast<const T*>(w.data),
              w.stride, T(y.add ? 1 : 0), y.data, y.stride);
}

#define EK_INSTANTIATE(T)                                                                                           \
  template void matmul_nt<T>(MatmulKernel, const ActivationsOf<T>&, std::span<const GroupedOperandOf<T>>,           \
                             MatmulScratch<T>&);                                                                    \
  template void matmul_nn<T>(MatmulKernel, const ActivationsOf<T>&, const GroupedOperandOf<T>&, MatmulScratch<T>&); \
  template void matmul_tn<T>(const ActivationsOf<T>&, int64_t, const StoredMatrix&, const ResultOf<T>&,             \
                             MatmulScratch<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::nn::kernels
