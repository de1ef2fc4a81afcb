// What the kernels share: bfloat16, loads of several values at once, sums over a block. Nothing is included: NVRTC has
// the built-in functions, and no header of CUDA is needed where the program runs.
#pragma once

#include "arguments.h"

namespace evenkeel::nn::cuda {

constexpr int kWarp = 32;

struct BFloat16 {
  unsigned short bits;
};

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(BFloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

template <typename T>
__device__ T narrowed(float x);
template <>
__device__ inline float narrowed<float>(float x) {
  return x;
}
// Rounds to the nearest, ties to even, as LibTorch does.
template <>
__device__ inline BFloat16 narrowed<BFloat16>(float x) {
  const unsigned bits = __float_as_uint(x);
  if (x != x) return {0x7fc0};
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// V values that are read and written at once, 16 bytes where V > 1.
template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T values[V];
};

template <typename T, int V>
__device__ Pack<T, V> load(const void* from, long long pack) {
  return static_cast<const Pack<T, V>*>(from)[pack];
}
template <typename T, int V>
__device__ void store(void* to, long long pack, const Pack<T, V>& values) {
  static_cast<Pack<T, V>*>(to)[pack] = values;
}

template <typename T>
__device__ T warp_sum(T x) {
  for (int other = kWarp / 2; other > 0; other /= 2) x += __shfl_xor_sync(0xffffffffu, x, other);
  return x;
}

// Returns the sum over all threads of the block to each of them, added in the same order in every run. All threads call
// it; the block has a multiple of 32 of them.
__device__ inline float block_sum(float x) {
  __shared__ float sums[kWarp];
  x = warp_sum(x);
  __syncthreads();  // an earlier sum may still be read
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (unsigned i = 0; i < blockDim.x / kWarp; ++i) sum += sums[i];
  return sum;
}

}  // namespace evenkeel::nn::cuda

// Defines an entry point, which calls `...` with the arguments of a launch. Code that runs the kernels without a GPU
// defines it otherwise.
#ifndef EVENKEEL_ENTRY
#define EVENKEEL_ENTRY(entry, Arguments, ...) \
  extern "C" __global__ void entry(const evenkeel::nn::cuda::Arguments a) { __VA_ARGS__(a); }
#endif

// Defines the entry points of a kernel for both types of values. "Wide" ones load 16 bytes at once, so that rows must
// begin at multiples of 16 bytes.
#define EVENKEEL_KERNEL(name, Arguments)                                                                 \
  EVENKEEL_ENTRY(name##_bf16_wide, Arguments, evenkeel::nn::cuda::name<evenkeel::nn::cuda::BFloat16, 8>) \
  EVENKEEL_ENTRY(name##_bf16, Arguments, evenkeel::nn::cuda::name<evenkeel::nn::cuda::BFloat16, 1>)      \
  EVENKEEL_ENTRY(name##_f32_wide, Arguments, evenkeel::nn::cuda::name<float, 4>)                         \
  EVENKEEL_ENTRY(name##_f32, Arguments, evenkeel::nn::cuda::name<float, 1>)
