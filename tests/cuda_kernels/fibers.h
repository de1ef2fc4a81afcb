/// \file  The functions and variables of CUDA that the kernels use, for the processor. Include it before the kernels.
#pragma once

#include <cmath>
#include <cstring>

#include "emulation.h"

#define __device__
#define __global__
#define __shared__ static  // blocks run one after another

namespace evenkeel::emulation {

struct Index {
  unsigned x = 0;
};

/// Waits until all threads of the block, or of the warp, that still run wait for the same.
void wait_for_block();
void wait_for_warp();
/// Returns `bits` of the thread whose lane differs from one's own in the bits `mask`.
uint64_t exchanged(uint64_t bits, unsigned mask);
/// Adds a kernel to those that find_kernel() knows. \return true
bool add_kernel(const Entry& kernel);

}  // namespace evenkeel::emulation

namespace evenkeel::nn::cuda {

extern emulation::Index threadIdx, blockIdx, blockDim;

inline void __syncthreads() { emulation::wait_for_block(); }
inline void __syncwarp() { emulation::wait_for_warp(); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulation::exchanged(bits, static_cast<unsigned>(mask));
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float __uint_as_float(unsigned bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline unsigned __float_as_uint(float x) {
  unsigned bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline int min(int a, int b) { return a < b ? a : b; }

}  // namespace evenkeel::nn::cuda

#define EVENKEEL_ENTRY(entry, Arguments, ...)                                                                        \
  static const bool entry##_added =                                                                                  \
      evenkeel::emulation::add_kernel({#entry, sizeof(evenkeel::nn::cuda::Arguments), [](const void* arguments) {    \
                                         __VA_ARGS__(*static_cast<const evenkeel::nn::cuda::Arguments*>(arguments)); \
                                       }});
