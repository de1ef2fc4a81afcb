/// \file  Loops over contiguous numbers: conversion, SwiGLU, row statistics. Single-threaded; callers split the work.
/// Every sum has a fixed order (16 interleaved partial sums), so a result does not depend on threads or instruction set
/// width.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>

namespace evenkeel::kernels {

/// Rows of `width` numbers that one piece of at::parallel_for takes: some 16,384 numbers.
constexpr int64_t row_grain(int64_t width) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1)); }

/// dst[i] = src[i] for `src` stored as float64, float32, float16 or bfloat16.
template <typename T>
void widen(const void* src, c10::ScalarType dtype, T* dst, int64_t n);

/// dst[i] = src[i], rounded to the nearest bfloat16, ties to even; NaN stays NaN.
template <typename T>
void narrow(const T* src, c10::BFloat16* dst, int64_t n);

/// dst[i] += src[i].
template <typename T>
void add_widened(const c10::BFloat16* src, T* dst, int64_t n);

/// h = silu(g) * u.
template <typename T>
void swiglu(const T* g, const T* u, T* h, int64_t n);

/// Backward of `weight * f(h)` through h = silu(g) * u, given dh = df/dh without the weight.
/// Writes h, dg and du (both with the weight); dg may be dh. \return sum(h * dh), the gradient of the weight.
template <typename T>
T swiglu_backward(const T* dh, const T* g, const T* u, T weight, T* h, T* dg, T* du, int64_t n);

template <typename T>
T dot(const T* a, const T* b, int64_t n);

/// y += alpha * x
template <typename T>
void axpy(T alpha, const T* x, T* y, int64_t n);

/// out[j] = dot(x, rows + j n) for `count` rows side by side, several at once: the same bits.
template <typename T>
void dots(const T* x, const T* rows, int64_t count, int64_t n, T* out);

/// y += sum_j alphas[j] * (rows + j n), several at once: the bits of axpy() row by row.
template <typename T>
void add_rows(const T* alphas, const T* rows, int64_t count, int64_t n, T* y);

/// In float64.
template <typename T>
double sum_of_squares(const T* x, int64_t n);

/// y += alpha * c with c = scale * x, each value of it within [-bound, bound]. \return the sum of c^2, in float64
template <typename T>
double add_clamped(T alpha, T scale, T bound, const T* x, T* y, int64_t n);

/// y = alpha * x
template <typename T>
void scaled_copy(T alpha, const T* x, T* y, int64_t n);

/// y = alpha * a * b, element by element.
template <typename T>
void scaled_product(T alpha, const T* a, const T* b, T* y, int64_t n);

/// x = exp(x - shift); \return the sum.
template <typename T>
T exp_shifted(T* x, T shift, int64_t n);

template <typename T>
T max_of(const T* x, int64_t n);

/// out[j] = (x cos - x' sin) of one head of RoPE in half-split layout; `sign` -1 turns back. In and out may be the
/// same.
template <typename T>
void rotate(const T* x, const float* cos, const float* sin, T sign, T* out, int64_t width);

}  // namespace evenkeel::kernels
