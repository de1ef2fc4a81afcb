/// \file  Runs a loop with the widest vector instructions of this processor. The loop is written once, in plain C++.
/// The compiler makes one copy per instruction set. It must keep the order of the loop's sums (no -ffast-math).
/// vectorised() selects a copy at run time. The AVX2 and AVX-512 copies use fused multiply-add where the compiler finds
/// one, unless the source is compiled with -ffp-contract=off; so their last bits may differ from those of the baseline.
/// Loop::run() must be `static EK_INLINE`, or all copies may call one function that was compiled for the baseline.
/// Example:  struct Scale { static EK_INLINE void run(float* x, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] *= 2;
/// } };
///           vectorised<Scale>(x, n);
#pragma once

#include <utility>

#define EK_INLINE inline __attribute__((always_inline))

namespace evenkeel {

/// Instruction sets that a loop is compiled for.
enum class Isa { kBaseline, kAvx2, kAvx512 };

/// Returns the widest instruction set that this processor supports. The result is computed once.
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

/// Returns true when the processor has AVX-512 and its dot products of bfloat16 pairs with a float32 result
/// (avx512bf16).
inline bool has_bfloat16_dots() {
#if defined(__x86_64__)
  static const bool found = isa() == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return found;
#else
  return false;
#endif
}

/// Returns true when the processor has AVX-512 and AMX tiles of bfloat16 with a float32 result, and the system permits
/// them. The first call requests the permission for all threads of the process.
bool has_bfloat16_tiles();

#if defined(__x86_64__)
#if defined(__clang__)  // rejects this option in an attribute
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

/// Calls the copy of Loop::run(args...) for isa(). Arguments are passed by value.
template <typename Loop, typename... Args>
auto vectorised(Args... args) {
#if defined(__x86_64__)
  if (isa() == Isa::kAvx512) return run_avx512<Loop>(args...);
  if (isa() == Isa::kAvx2) return run_avx2<Loop>(args...);
#endif
  return Loop::run(args...);
}

}  // namespace evenkeel
