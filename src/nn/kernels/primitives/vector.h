/// \file  Provides loops over contiguous arrays: conversion, SwiGLU, softmax parts, row statistics. T is float or
/// double. All functions run in the calling thread; callers split the work. Every sum has a fixed order (16 interleaved
/// partial sums, added up at the end), so results do not depend on threads or on the width of the vectors. Processors
/// without FMA round twice per multiply-add, so their last bits may differ.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>

namespace evenkeel::nn::kernels {

/// Returns how many rows of `width` numbers make one piece of a parallel loop: about 16,384 numbers, at least one row.
constexpr int64_t row_grain(int64_t width) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1)); }

/// Converts `n` numbers: dst[i] = src[i]. \param dtype  the type of `src`: float64, float32, float16 or bfloat16
/// \throws Error{kInternal} for another type
template <typename T>
void widen(const void* src, c10::ScalarType dtype, T* dst, int64_t n);

/// Rounds `n` numbers to the nearest bfloat16, ties to even. NaN stays NaN.
template <typename T>
void narrow(const T* src, c10::BFloat16* dst, int64_t n);

/// Computes dst[i] += src[i].
template <typename T>
void add_widened(const c10::BFloat16* src, T* dst, int64_t n);

/// Computes h[i] = silu(g[i]) * u[i].
template <typename T>
void swiglu(const T* g, const T* u, T* h, int64_t n);

/// Computes the gradients of `weight * f(h)` with h = silu(g) * u, and recomputes h. The function writes h, dg and du;
/// dg and du include the factor `weight`. \param dh  df/dh, without the weight; dg may be the same array
/// \return sum(h * dh), the gradient of the weight
template <typename T>
T swiglu_backward(const T* dh, const T* g, const T* u, T weight, T* h, T* dg, T* du, int64_t n);

/// Returns the dot product of a and b.
template <typename T>
T dot(const T* a, const T* b, int64_t n);

/// Computes y += alpha * x.
template <typename T>
void axpy(T alpha, const T* x, T* y, int64_t n);

/// Computes out[j] = dot(x, row j) for `count` contiguous rows of n numbers. Four rows run at once. The results have
/// the same bits as dot().
template <typename T>
void dots(const T* x, const T* rows, int64_t count, int64_t n, T* out);

/// Computes y += sum over j of alphas[j] * (row j) for `count` contiguous rows of n numbers. Four rows run at once. The
/// results have the same bits as one axpy() per row.
template <typename T>
void add_rows(const T* alphas, const T* rows, int64_t count, int64_t n, T* y);

/// Returns the sum of x[i]^2, computed in float64.
template <typename T>
double sum_of_squares(const T* x, int64_t n);

/// Computes y += alpha * c, where c is scale * x clamped to [-bound, bound]. \return the sum of c^2, in float64
template <typename T>
double add_clamped(T alpha, T scale, T bound, const T* x, T* y, int64_t n);

/// Computes y = alpha * x.
template <typename T>
void scaled_copy(T alpha, const T* x, T* y, int64_t n);

/// Computes y = alpha * a * b, element by element.
template <typename T>
void scaled_product(T alpha, const T* a, const T* b, T* y, int64_t n);

/// Replaces x by exp(x - shift). \return the sum of the results
template <typename T>
T exp_shifted(T* x, T shift, int64_t n);

/// Returns the largest of n >= 1 numbers.
template <typename T>
T max_of(const T* x, int64_t n);

/// Applies RoPE to one head of `width` numbers in the half-split layout: out = (x1 cos - x2 sin, x2 cos + x1 sin) with
/// the halves x1 and x2 of x. \param sign  1, or -1 for the inverse rotation. \param out  may be x
template <typename T>
void rotate(const T* x, const float* cos, const float* sin, T sign, T* out, int64_t width);

}  // namespace evenkeel::nn::kernels
