/// \file  Runs a loop in the widest vector instructions this processor has. The loop is written once, in plain C++ with
/// a fixed summation order; the compiler vectorises one copy per instruction set and the choice is made at run time.
/// Example:  struct Scale { static EK_INLINE void run(float* x, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] *= 2;
/// } };
///           vectorised<Scale>(x, n);
#pragma once

#include <utility>

#define EK_INLINE inline __attribute__((always_inline))

namespace evenkeel {

enum class Isa { kBaseline, kAvx2, kAvx512 };

inline Isa isa() {
#if defined(__x86_64__)
  static const Isa found = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
      return Isa::kAvx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? Isa::kAvx2 : Isa::kBaseline;
  }();
  return found;
#else
  return Isa::kBaseline;
#endif
}

/// Dot products of pairs of bfloat16 into float32, beside kAvx512.
inline bool has_bfloat16_dots() {
#if defined(__x86_64__)
  static const bool found = isa() == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return found;
#else
  return false;
#endif
}

/// Tiles of bfloat16 (AMX) into float32, beside kAvx512. The first call asks the system for the registers, for all
/// threads of the process.
bool has_bfloat16_tiles();

#if defined(__x86_64__)
#if defined(__clang__)  // takes no such wish in an attribute
#define EK_AVX512_WIDTH ""
#else
#define EK_AVX512_WIDTH ",prefer-vector-width=512"
#endif
template <typename Loop, typename... Args>
__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma" EK_AVX512_WIDTH))) auto run_avx512(Args... args) {
  return Loop::run(args...);
}
template <typename Loop, typename... Args>
__attribute__((target("avx2,fma"))) auto run_avx2(Args... args) {
  return Loop::run(args...);
}
#endif

template <typename Loop, typename... Args>
auto vectorised(Args... args) {
#if defined(__x86_64__)
  if (isa() == Isa::kAvx512) return run_avx512<Loop>(args...);
  if (isa() == Isa::kAvx2) return run_avx2<Loop>(args...);
#endif
  return Loop::run(args...);
}

}  // namespace evenkeel
